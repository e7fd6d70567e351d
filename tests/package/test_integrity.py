# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from splashpy.errors import IntegrityError, ModelKindError, RemoteCodeError
from splashpy.package.integrity import (
    check_files,
    check_shards,
    refuse_code,
    sha256_file,
)
from splashpy.package.manifest import Manifest
from splashpy.package.progress import CancelledError
from splashpy.protocol import LoadProgress

RewriteManifest = Callable[[Path], Manifest]


@pytest.fixture
def package(tmp_path: Path, make_package: Callable[[Path], Path]) -> Path:
    return make_package(tmp_path / "package")


def check(package: Path, *, full: bool = True) -> None:
    check_files(package, Manifest.open(package), full=full)


def test_a_whole_package_passes_with_progress_to_the_end(package: Path) -> None:
    manifest = Manifest.open(package)
    steps: list[LoadProgress] = []

    check_files(package, manifest, full=True, progress=steps.append)

    assert {step.phase for step in steps} == {"verify"}
    assert [step.done for step in steps] == sorted(step.done for step in steps)
    assert (steps[-1].done, steps[-1].total) == (manifest.size_bytes,) * 2


def test_a_changed_byte_names_the_file_and_both_digests(package: Path) -> None:
    weights = package / "target" / "model.safetensors"
    before = sha256_file(weights)
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1
    weights.write_bytes(content)

    check(package, full=False)  # the size is still right
    with pytest.raises(IntegrityError, match="SHA-256") as failure:
        check(package)

    assert str(weights) in failure.value.message
    assert before in failure.value.why
    assert sha256_file(weights) in failure.value.why


def test_a_wrong_size_is_found_without_hashing(package: Path) -> None:
    (package / "target" / "config.json").write_text("{}", encoding="utf-8")

    with pytest.raises(IntegrityError, match="wrong size"):
        check(package, full=False)


def test_a_missing_file_is_an_incomplete_download(package: Path) -> None:
    (package / "licenses" / "target.txt").unlink()

    with pytest.raises(IntegrityError, match=r"target\.txt: missing"):
        check(package, full=False)


@pytest.mark.parametrize("name", ["target/extra.json", "notes.md", ".hidden"])
def test_an_unlisted_file_is_refused(package: Path, name: str) -> None:
    (package / name).write_text("x", encoding="utf-8")

    with pytest.raises(IntegrityError, match="not listed"):
        check(package, full=False)


@pytest.mark.parametrize(
    "name", ["README.md", "LICENSE", "NOTICE", "licenses/more.txt", "target/.DS_Store"]
)
def test_what_only_people_read_may_be_unlisted(package: Path, name: str) -> None:
    (package / name).write_text("x", encoding="utf-8")

    check(package, full=False)


@pytest.mark.parametrize(
    "name",
    ["evil.py", "target/model.pkl", "licenses/x.sh", "target/w.BIN", "draft/model.pt"],
)
def test_executable_content_is_refused_even_when_listed(
    package: Path, rewrite_manifest: RewriteManifest, name: str
) -> None:
    (package / name).parent.mkdir(exist_ok=True)
    (package / name).write_text("x", encoding="utf-8")
    rewrite_manifest(package)

    with pytest.raises(RemoteCodeError, match="executable content"):
        check(package, full=False)


@pytest.mark.parametrize("name", ["config.json", "folder"])
def test_a_link_that_leaves_the_package_is_refused(
    package: Path, tmp_path: Path, rewrite_manifest: RewriteManifest, name: str
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "config.json").write_text("{}", encoding="utf-8")
    link = package / "target" / f"linked-{name}"
    link.symlink_to(outside if name == "folder" else outside / name)
    rewrite_manifest(package)

    with pytest.raises(IntegrityError, match="leaves the package"):
        check(package, full=False)


def test_a_loop_of_links_is_refused(package: Path) -> None:
    config = package / "target" / "config.json"
    config.unlink()
    config.symlink_to("config.json")

    with pytest.raises(IntegrityError, match=r"config\.json: missing"):
        check(package, full=False)


def test_links_into_the_blobs_of_a_hub_cache_are_its_own(
    package: Path, tmp_path: Path
) -> None:
    repo = tmp_path / "models--owner--repo"
    snapshot, blobs = repo / "snapshots" / ("a" * 40), repo / "blobs"
    shutil.copytree(package, snapshot)
    blobs.mkdir()
    config = snapshot / "target" / "config.json"
    config.rename(blobs / "b1")
    config.symlink_to("../../../blobs/b1")

    check(snapshot)


def test_hashing_stops_when_asked(package: Path) -> None:
    with pytest.raises(CancelledError):
        check_files(package, Manifest.open(package), full=True, cancelled=lambda: True)


def write_shards(directory: Path, *, indexed: bool) -> None:
    names = [f"model-0000{n}-of-00003.safetensors" for n in (1, 2, 3)]
    for n, name in enumerate(names):
        save_file({f"layer.{n}": np.zeros(4, np.float32)}, directory / name)
    if indexed:
        placed = {f"layer.{n}": name for n, name in enumerate(names)}
        index = directory / "model.safetensors.index.json"
        index.write_text(json.dumps({"weight_map": placed}), encoding="utf-8")


@pytest.mark.parametrize("indexed", [True, False])
def test_missing_shards_are_listed_as_an_incomplete_download(
    tmp_path: Path, indexed: bool
) -> None:
    write_shards(tmp_path, indexed=indexed)
    check_shards(tmp_path)
    for n in (1, 3):
        (tmp_path / f"model-0000{n}-of-00003.safetensors").unlink()

    with pytest.raises(IntegrityError, match="incomplete download") as failure:
        check_shards(tmp_path)

    assert failure.value.why == (
        "missing: model-00001-of-00003.safetensors, model-00003-of-00003.safetensors"
    )


def test_a_link_to_a_blob_that_never_arrived_is_missing(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").symlink_to("../blobs/gone")

    with pytest.raises(IntegrityError, match="incomplete download"):
        check_shards(tmp_path)


def test_a_shard_without_its_tensor_is_refused(tmp_path: Path) -> None:
    write_shards(tmp_path, indexed=True)
    save_file({"other": np.zeros(4)}, tmp_path / "model-00002-of-00003.safetensors")

    with pytest.raises(IntegrityError, match="1 tensors of the index") as failure:
        check_shards(tmp_path)

    assert "layer.1" in failure.value.why


@pytest.mark.parametrize("shard", ["../model.safetensors", "/x.safetensors", "a/b", 7])
def test_an_index_cannot_point_elsewhere(tmp_path: Path, shard: Any) -> None:
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {"w": shard}}), encoding="utf-8")

    with pytest.raises((IntegrityError, ModelKindError)):
        check_shards(tmp_path)


def test_thousands_of_missing_shards_fit_into_one_message(tmp_path: Path) -> None:
    save_file({"w": np.zeros(1)}, tmp_path / "model-00001-of-99999.safetensors")

    with pytest.raises(IntegrityError) as failure:
        check_shards(tmp_path)

    assert failure.value.why.endswith("and 99990 more")


def test_a_directory_without_weights_says_what_it_has(tmp_path: Path) -> None:
    (tmp_path / "pytorch_model.bin").write_bytes(b"x")

    with pytest.raises(ModelKindError) as failure:
        check_shards(tmp_path)

    assert failure.value.why == "found: pytorch_model.bin"


@pytest.mark.parametrize(
    "config",
    [
        {"auto_map": {"AutoModel": "modeling.Evil"}},
        {"model_file": "evil.py"},
        {"text_config": {"vision": {"auto_map": {"AutoConfig": "x.Y"}}}},
    ],
)
def test_a_configuration_that_names_code_is_refused(config: dict[str, Any]) -> None:
    with pytest.raises(RemoteCodeError, match=r"config\.json"):
        refuse_code(config, "config.json")


def test_deep_nesting_does_not_exhaust_the_stack() -> None:
    config: dict[str, Any] = {}
    for _ in range(100_000):
        config = {"a": config}

    refuse_code(config, "config.json")


@pytest.mark.parametrize("full", [False, True])
def test_what_is_listed_is_a_file(
    package: Path, rewrite_manifest: RewriteManifest, *, full: bool
) -> None:
    path = package / "licenses" / "more.txt"
    path.touch()
    rewrite_manifest(package)
    path.unlink()
    path.mkdir()
    size = path.stat().st_size
    listing = json.loads((package / "splashpy.json").read_bytes())
    for entry in listing["files"]:
        if entry["path"] == "licenses/more.txt":
            entry["size"] = size
    (package / "splashpy.json").write_text(json.dumps(listing))

    with pytest.raises(IntegrityError, match=r"more\.txt: not a regular file"):
        check(package, full=full)


def test_code_is_found_in_lists_too() -> None:
    with pytest.raises(RemoteCodeError, match="auto_map"):
        refuse_code({"parts": [1, [{"auto_map": {"AutoModel": "evil.py"}}]]}, "c.json")
