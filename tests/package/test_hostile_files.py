# SPDX-License-Identifier: Apache-2.0
"""Damaged and hostile files: always an error for people, never more than the file.

Every test makes hundreds of variants of a good file. Reading one either succeeds or
ends with an error that names the file.
"""

from __future__ import annotations

import contextlib
import copy
import json
import struct
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.numpy import save
from splash_kit import TinySplash, tiny_format, write_tiny_splash

from splashpy.errors import PackageError
from splashpy.package.manifest import Manifest
from splashpy.package.splash.header import check_image
from splashpy.package.splash.image import read_image
from splashpy.package.splash.layout import target_layer
from splashpy.package.splash.manifest import SplashManifest
from splashpy.package.splash.package import SplashPackage
from splashpy.package.weights.safetensors_file import Checkpoint

ROOM_BYTES = 4 << 20
"""What a reader may use beside the file: messages, parsed JSON, Python itself."""

MANY = settings(
    max_examples=500,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)

scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.sampled_from([10**39, -(10**400), 10**400]),
    st.floats(),
    st.text(max_size=20),
    st.sampled_from(["../../etc/passwd", "/abs", "a\\b", "a/../b", "C:x", "\x00", ""]),
)
values = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=6,
)


def places(document: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Where something can be replaced."""
    if isinstance(document, dict):
        items: Any = document.items()
    elif isinstance(document, list):
        items = enumerate(document)
    else:
        items = ()
    found = [path] if path else []
    for key, value in items:
        found += places(value, (*path, key))
    return found


@st.composite
def damaged(draw: st.DrawFn, document: Any) -> Any:
    """The document with a few values replaced or left out."""
    document = copy.deepcopy(document)
    for _ in range(draw(st.integers(1, 3))):
        path = draw(st.sampled_from(places(document)))
        at = document
        for key in path[:-1]:
            at = at[key]
        if draw(st.booleans()):
            at[path[-1]] = draw(values)
        else:
            del at[path[-1]]
        if not places(document):
            break
    return document


def survives(read: Callable[[], Any], size: int) -> None:
    """Reading succeeds or fails as it should, within the memory it may use."""
    tracemalloc.start()
    try:
        with contextlib.suppress(PackageError):
            read()
    finally:
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert peak <= size + ROOM_BYTES


@pytest.fixture(scope="module")
def splash(tmp_path_factory: pytest.TempPathFactory) -> TinySplash:
    path = tmp_path_factory.mktemp("splash") / "it"
    return write_tiny_splash(path, "splash-packed-q4-moe")


@pytest.fixture(scope="module")
def listed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    digest, source = "ab" * 32, {"kind": "local", "repo_id": "a", "revision": "b"}
    terms = {"spdx": "MIT", "text": "licenses/target.txt"}
    paths = ("target/config.json", "tokenizer/tokenizer.json", "licenses/target.txt")
    files = [{"path": path, "size": 1, "sha256": digest} for path in paths]
    return {
        "format": {"name": "splashpy-package", "version": 1},
        "name": "tiny",
        "created_with": {"tool": "x"},
        "target": {
            "model_type": "llama",
            "hidden_size": 8,
            "num_hidden_layers": 1,
            "vocab_size": 9,
            "max_context": 5,
            "cache_kinds": ["kv"],
            "quantization": {"bits": 4, "group_size": 64, "overrides": {}},
            "source": {**source, "files": files},
            "license": terms,
        },
        "draft": {
            "architecture": "A",
            "dflash_config": {},
            "trained_for": {"repo_id": "a", "revision": "b"},
            "source": source,
            "license": terms,
        },
        "pairing": {"hidden_size": 1, "vocab_size": 1, "token_map_sha256": digest},
        "tokens": {"eos_token_ids": [1], "special": {"bos": 1}},
        "files": files,
        "files_digest": digest,
    }


@MANY
@given(data=st.data())
def test_a_damaged_splashpy_json(listed: dict[str, Any], data: st.DataObject) -> None:
    document = data.draw(damaged(listed))

    survives(lambda: Manifest.from_json(document), len(repr(document)))


def test_packings_do_not_nest(listed: dict[str, Any]) -> None:
    document = copy.deepcopy(listed)
    packed = document["target"]["quantization"]
    for _ in range(2000):
        packed["overrides"] = {"a": {"bits": 4, "group_size": 64}}
        packed = packed["overrides"]["a"]

    survives(lambda: Manifest.from_json(document), 1 << 20)


@MANY
@given(data=st.data())
def test_a_damaged_manifest_json(splash: TinySplash, data: st.DataObject) -> None:
    whole = json.loads((splash.path / "manifest.json").read_bytes())
    document = data.draw(damaged(whole))

    survives(
        lambda: SplashManifest.from_json(document, table=splash.table),
        len(repr(document)),
    )


@MANY
@given(content=st.binary(max_size=200))
def test_any_bytes_as_a_json_file(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "manifest.json").write_bytes(content)
    (tmp_path / "splashpy.json").write_bytes(content)

    for read in (SplashManifest.open, SplashPackage.open, Manifest.open):
        survives(lambda read=read: read(tmp_path), len(content))


GOOD = save({"b": np.ones((2, 3), np.float32), "a": np.zeros(5, np.uint8)})
(LENGTH,) = struct.unpack("<Q", GOOD[:8])
HEADER = json.loads(GOOD[8 : 8 + LENGTH])


def weights(header: Any, length: int | None, body: bytes) -> bytes:
    text = json.dumps(header).encode(errors="surrogatepass")
    return struct.pack("<Q", len(text) if length is None else length) + text + body


@MANY
@given(
    data=st.data(),
    length=st.one_of(st.none(), st.integers(0, 2**64 - 1)),
    body=st.binary(max_size=64),
)
def test_a_damaged_safetensors_header(
    tmp_path: Path, data: st.DataObject, length: int | None, body: bytes
) -> None:
    content = weights(data.draw(damaged(HEADER)), length, body)
    path = tmp_path / "model.safetensors"
    path.write_bytes(content)

    def read() -> None:
        checkpoint = Checkpoint.open(tmp_path)
        for name in checkpoint:
            tensor = checkpoint[name]
            assert tensor.num_bytes <= len(content)

    survives(read, len(content))


@MANY
@given(
    at=st.integers(0, len(GOOD) - 1),
    to=st.integers(0, 255),
    cut=st.integers(0, len(GOOD)),
)
def test_a_changed_byte_or_a_cut_in_safetensors(
    tmp_path: Path, at: int, to: int, cut: int
) -> None:
    content = bytearray(GOOD)
    content[at] = to
    (tmp_path / "model.safetensors").write_bytes(content[:cut])

    def read() -> None:
        checkpoint = Checkpoint.open(tmp_path)
        assert all(checkpoint[name].num_bytes <= cut for name in checkpoint)

    survives(read, cut)


@MANY
@given(header=st.binary(min_size=16, max_size=16), size=st.integers(0, 1 << 16))
def test_any_header_and_size_of_a_splash_file(
    tmp_path: Path, header: bytes, size: int
) -> None:
    layout = target_layer(tiny_format("splash-packed-q4"), 0)
    path = tmp_path / "layer-0.bin"
    path.write_bytes(header[:size].ljust(size, b"\x01"))

    survives(lambda: check_image(path, layout), size)


@settings(max_examples=10)
@given(seed=st.integers(0, 2**32 - 1))
def test_any_content_of_a_splash_file_is_only_numbers(
    tmp_path_factory: pytest.TempPathFactory, seed: int
) -> None:
    layout = target_layer(tiny_format("splash-packed-q4-moe"), 0)
    path = tmp_path_factory.mktemp("image") / "layer-0.bin"
    header = struct.pack("<8sII", layout.magic, layout.layer, layout.kind)
    random = np.random.default_rng(seed)
    rest = random.integers(0, 256, layout.num_bytes - len(header), np.uint8)
    path.write_bytes(header + rest.tobytes())

    names = {name for content in read_image(path, layout) for name in content.tensors}

    assert names == set(layout.tensors())


@pytest.mark.parametrize(
    "shape", [[2**62], [2**31, 2**31], [0, 2**63], [-1], [1.0], [True]]
)
def test_an_announced_size_is_never_allocated(tmp_path: Path, shape: list[Any]) -> None:
    header = {"a": {"dtype": "F32", "shape": shape, "data_offsets": [0, 4]}}
    (tmp_path / "model.safetensors").write_bytes(weights(header, None, b"1234"))

    survives(lambda: list(Checkpoint.open(tmp_path).items()), 300)


def test_the_same_name_in_two_files_is_refused(tmp_path: Path) -> None:
    for number in (1, 2):
        name = f"model-0000{number}-of-00002.safetensors"
        (tmp_path / name).write_bytes(GOOD)

    with pytest.raises(PackageError, match="is in two files"):
        Checkpoint.open(tmp_path)
