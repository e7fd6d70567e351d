# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from splashpy.errors import IntegrityError, ModelKindError, PackageError, VersionError
from splashpy.package.components import (
    Draft,
    License,
    Quantization,
    Source,
    SourceFile,
    Target,
)
from splashpy.package.manifest import (
    Check,
    FileEntry,
    Manifest,
    Pairing,
    SamplingDefaults,
    Tokens,
    files_digest,
)

words = st.text(st.characters(categories=("L", "N", "S")), min_size=1, max_size=12)
counts = st.integers(1, 2**40)
digests = st.text("0123456789abcdef", min_size=64, max_size=64)
paths = st.from_regex(r"[a-z0-9]{1,8}(/[a-z0-9]{1,8}){0,2}\.txt", fullmatch=True)
free = st.dictionaries(words, st.integers() | words | st.booleans(), max_size=3)
source_files = st.builds(SourceFile, path=paths, size=counts, sha256=digests)
sources = st.builds(
    Source,
    kind=st.sampled_from(["huggingface", "pypi-wheel", "recipe"]),
    repo_id=words,
    revision=words,
    files=st.lists(source_files, max_size=2).map(tuple),
)
licenses = st.builds(
    License,
    spdx=words,
    text=paths,
    url=st.just("") | words,
    redistribution=st.sampled_from(["allowed", "forbidden", "unknown"]),
)
flat = st.builds(
    Quantization, bits=st.integers(1, 8), group_size=counts, overrides=st.just({})
)
quantizations = st.none() | st.builds(
    Quantization,
    bits=st.integers(1, 8),
    group_size=counts,
    overrides=st.dictionaries(words, flat, max_size=2),
)


@st.composite
def targets(draw: st.DrawFn) -> Target:
    layers = draw(st.integers(1, 4))
    return Target(
        model_type=draw(words),
        mlx_lm=draw(words),
        hidden_size=draw(counts),
        num_hidden_layers=layers,
        vocab_size=draw(counts),
        max_context=draw(counts),
        cache_kinds=tuple(draw(st.sampled_from(["kv", "gdn"])) for _ in range(layers)),
        quantization=draw(quantizations),
        source=draw(sources),
        license=draw(licenses),
    )


drafts = st.builds(
    Draft,
    architecture=words,
    dflash_config=free,
    layer_types=st.lists(words, max_size=3).map(tuple),
    sliding_window=st.none() | counts,
    is_causal=st.none() | st.booleans(),
    rope=free,
    shares=st.lists(words, max_size=2).map(tuple),
    quantization=quantizations,
    trained_for=st.tuples(words, words),
    source=sources,
    license=licenses,
)
pairings = st.builds(
    Pairing,
    hidden_size=counts,
    vocab_size=counts,
    token_map_sha256=digests,
    acceptance=st.none() | free,
)
token_ids = st.lists(st.integers(0, 2**31), max_size=4).map(tuple)
checks = st.builds(Check, prompt_token_ids=token_ids, token_ids=token_ids, device=words)
entries = st.builds(FileEntry, path=paths, size=counts, sha256=digests, role=words)
needed = [
    FileEntry(path=path, size=1, sha256="0" * 64)
    for path in ("target/config.json", "tokenizer/tokenizer.json")
]


@st.composite
def manifests(draw: st.DrawFn) -> Manifest:
    paired = draw(st.booleans())
    others = draw(st.lists(entries, max_size=3, unique_by=lambda entry: entry.path))
    return Manifest(
        name=draw(words),
        created_with=draw(st.dictionaries(words, words, max_size=2)),
        created_at="2026-01-01T00:00:00Z",
        target=draw(targets()),
        draft=draw(drafts) if paired else None,
        pairing=draw(pairings) if paired else None,
        tokens=Tokens(
            eos_token_ids=draw(token_ids),
            mask_token_id=draw(st.none() | st.integers(0, 99)),
            special=draw(st.dictionaries(words, st.integers(0, 99), max_size=2)),
        ),
        sampling=SamplingDefaults(
            temperature=draw(st.none() | st.floats(0, 2)),
            top_k=draw(st.none() | counts),
        ),
        reasoning=draw(st.none() | free),
        check=draw(st.none() | checks),
        files=tuple(sorted([*needed, *others], key=lambda entry: entry.path)),
    )


@given(manifests())
def test_what_is_written_is_what_is_read(manifest: Manifest) -> None:
    content = manifest.to_bytes()

    again = Manifest.from_json(json.loads(content))

    assert again == manifest
    assert again.to_bytes() == content


@pytest.fixture
def data(tmp_path: Path, make_package: Callable[[Path], Path]) -> dict[str, Any]:
    directory = make_package(tmp_path / "package")
    return json.loads((directory / "splashpy.json").read_text(encoding="utf-8"))


def test_unknown_keys_are_ignored(data: dict[str, Any]) -> None:
    plain = Manifest.from_json(copy.deepcopy(data))
    data["future"] = 1
    data["target"]["future"] = {"a": []}

    assert Manifest.from_json(data) == plain


@pytest.mark.parametrize("form", [{"name": "splash-packed-q4", "version": 1}])
def test_another_format_is_a_version_error(
    data: dict[str, Any], form: dict[str, Any]
) -> None:
    with pytest.raises(VersionError, match="splash-packed-q4"):
        Manifest.from_json(data | {"format": form})


def test_a_newer_version_says_how_to_read_it(data: dict[str, Any]) -> None:
    data["format"]["version"] = 2

    with pytest.raises(VersionError, match="version 2") as failure:
        Manifest.from_json(data)

    assert failure.value.fix == ("pip install --upgrade splashpy",)


@pytest.mark.parametrize(
    "path",
    [
        *("format", "name", "created_with", "target", "tokens"),
        *("target.hidden_size", "target.source", "target.source.revision"),
        *("target.license.spdx", "files_digest"),
    ],
)
def test_a_missing_required_key_is_named(data: dict[str, Any], path: str) -> None:
    *parents, key = path.split(".")
    owner = data
    for parent in parents:
        owner = owner[parent]
    del owner[key]

    with pytest.raises(ModelKindError, match=rf"splashpy\.json: key {path} is missing"):
        Manifest.from_json(data)


@pytest.mark.parametrize(
    "change",
    [
        {"path": "../evil.json"},
        {"path": "/etc/passwd"},
        {"path": "splashpy.json"},
        {"path": "target"},
        {"sha256": "0" * 63},
        {"sha256": "g" * 64},
        {"size": -1},
        {"size": 1.0},
        {"size": True},
    ],
)
def test_a_hostile_file_entry_is_refused(
    data: dict[str, Any], change: dict[str, Any]
) -> None:
    data["files"].append({"path": "x", "size": 1, "sha256": "0" * 64} | change)

    with pytest.raises(PackageError):
        Manifest.from_json(data)


def test_a_changed_file_list_does_not_match_its_digest(data: dict[str, Any]) -> None:
    data["files"][0]["sha256"] = "0" * 64

    with pytest.raises(IntegrityError, match="files_digest"):
        Manifest.from_json(data)


def test_a_draft_without_pairing_is_refused(data: dict[str, Any]) -> None:
    data["draft"] = {}

    with pytest.raises(ModelKindError, match="draft and pairing"):
        Manifest.from_json(data)


def test_layers_and_their_kinds_must_be_as_many(data: dict[str, Any]) -> None:
    data["target"]["cache_kinds"] = ["kv"]

    with pytest.raises(ModelKindError, match="1 entries for 2 layers"):
        Manifest.from_json(data)


def test_files_digest_is_over_lines_sorted_by_path() -> None:
    files = [
        FileEntry(path="b", size=1, sha256="1" * 64),
        FileEntry(path="a", size=1, sha256="2" * 64),
    ]

    # Made by sha256sum (GNU coreutils) from the two lines "222... a" and "111... b".
    assert files_digest(files) == (
        "e3f5ace8192d675696431c18768bee00f4ba1c3122e2b51a0abe0fde288e480d"
    )
