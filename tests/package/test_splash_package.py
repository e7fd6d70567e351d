# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
import splash_kit
from mlx_lm.utils import _get_classes
from splash_kit import NAMES, TinySplash, write_tiny_splash

from splashpy.errors import (
    IntegrityError,
    ModelKindError,
    RemoteCodeError,
    VersionError,
)
from splashpy.models.arrays import from_mlx, to_mlx
from splashpy.models.dflash2_parse import parse_config
from splashpy.package.splash.package import SplashPackage, is_splash
from splashpy.package.splash.reading import draft_tensors, target_tensors
from splashpy.packing.quantize import quantize
from splashpy.packing.splash_files import SplashParts, write_splash


@pytest.fixture(scope="module", params=NAMES)
def written(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> TinySplash:
    return write_tiny_splash(tmp_path_factory.mktemp("splash") / "it", request.param)


@pytest.fixture
def copied(written: TinySplash, tmp_path: Path) -> TinySplash:
    """A package of its own, to be damaged."""
    path = shutil.copytree(written.path, tmp_path / "package")
    return TinySplash(path, written.row, written.model, written.draft)


def opened(splash: TinySplash) -> SplashPackage:
    return SplashPackage.open(splash.path, splash.table)


def test_a_target_comes_back_with_the_same_bits_and_logits(
    written: TinySplash,
) -> None:
    package = opened(written)
    read = {name: to_mlx(tensor) for name, tensor in target_tensors(package)}

    config = package.target_config()
    model_class, args_class = _get_classes(config)
    model = model_class(args_class.from_dict(config))
    splash_kit.pack(model)
    model.load_weights(list(read.items()), strict=True)

    given = splash_kit.parameters(written.model)
    assert given.keys() == read.keys()
    for name, array in given.items():
        assert array.dtype == read[name].dtype, name
        assert from_mlx(array).data.tobytes() == from_mlx(read[name]).data.tobytes()
    prompt = mx.array([[5, 9, 17, 300]])
    assert mx.array_equal(written.model(prompt), model(prompt))


def test_a_drafter_comes_back_with_the_codes_of_its_weights(
    written: TinySplash,
) -> None:
    package = opened(written)
    read = dict(draft_tensors(package))

    config = parse_config(package.draft_config(), "draft")
    assert config.mask_token_id == written.row.draft.mask_token_id
    for name, tensor in written.draft.items():
        if name.removesuffix(".weight") + ".scales" in read:
            packed = quantize(tensor, group_size=64, bits=4, name=name)
            assert np.array_equal(read[name].data, packed.weight.data)
        else:
            assert np.array_equal(read[name].data, tensor.data)


def test_what_was_read_is_written_again_byte_for_byte(
    written: TinySplash, tmp_path: Path
) -> None:
    package = opened(written)
    target = dict(target_tensors(package, raw_decay=True))
    draft = dict(draft_tensors(package))
    vision = splash_kit.vision_tensors(written.row)

    write_splash(
        written.row,
        SplashParts(
            target.__getitem__,
            draft.__getitem__,
            vision.__getitem__,
            splash_kit.tokenizer_files(written.row),
            model="another name",
            original=package.manifest.content,
        ),
        tmp_path,
    )

    for path in sorted(written.path.rglob("*.*")):
        name = path.relative_to(written.path)
        assert (tmp_path / name).read_bytes() == path.read_bytes(), name


def test_the_vision_tower_may_be_missing(copied: TinySplash) -> None:
    (copied.path / "vision" / "model.bin").unlink()

    package = opened(copied)
    package.check_digests()

    assert not package.has_vision


def test_published_sizes_are_asked_for_without_the_small_table(
    written: TinySplash,
) -> None:
    with pytest.raises((ModelKindError, VersionError)):
        SplashPackage.open(written.path)


def test_a_changed_byte_is_found_by_its_digest(copied: TinySplash) -> None:
    path = copied.path / "target" / "layer-1.bin"
    content = bytearray(path.read_bytes())
    content[20000] ^= 1
    path.write_bytes(content)

    package = opened(copied)  # sizes and headers are right
    with pytest.raises(IntegrityError, match=r"target/layer-1\.bin: its SHA-256"):
        package.check_digests()


@pytest.mark.parametrize("change", [-16384, -1, 1])
def test_a_wrong_size_names_the_file_and_both_sizes(
    copied: TinySplash, change: int
) -> None:
    path = copied.path / "draft" / "model.bin"
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.truncate(size + change)

    with pytest.raises(IntegrityError, match=r"draft/model\.bin: wrong size") as found:
        opened(copied)

    assert str(size) in found.value.why
    assert str(size + change) in found.value.why


@pytest.mark.parametrize("at", [0, 8, 12])
def test_the_header_of_another_file_is_refused(copied: TinySplash, at: int) -> None:
    path = copied.path / "target" / "layer-0.bin"
    content = bytearray(path.read_bytes())
    content[at] ^= 1
    path.write_bytes(content)

    with pytest.raises(IntegrityError, match=r"layer-0\.bin: not the header"):
        opened(copied)


def test_a_missing_file_is_named(copied: TinySplash) -> None:
    (copied.path / "target" / "head.bin").unlink()

    with pytest.raises(IntegrityError, match=r"target/head\.bin: missing"):
        opened(copied)


def test_a_link_that_leaves_the_package_is_refused(
    copied: TinySplash, tmp_path: Path
) -> None:
    path = copied.path / "target" / "head.bin"
    path.rename(tmp_path / "head.bin")
    path.symlink_to(tmp_path / "head.bin")

    with pytest.raises(IntegrityError, match="leaves the package"):
        opened(copied)


def change_config(splash: TinySplash, **changes: Any) -> None:
    """Rewrite tokenizer/config.json and list it again."""
    path = splash.path / "tokenizer" / "config.json"
    config = json.loads(path.read_text(encoding="utf-8"))
    config |= {key: value for key, value in changes.items() if key != "text_config"}
    config["text_config"] |= changes.get("text_config", {})
    path.write_text(json.dumps(config), encoding="utf-8")
    manifest = splash.path / "manifest.json"
    listed = json.loads(manifest.read_text(encoding="utf-8"))
    for entry in listed["artifacts"]:
        if entry["path"] == "tokenizer/config.json":
            entry["size"] = path.stat().st_size
    manifest.write_text(json.dumps(listed), encoding="utf-8")


@pytest.mark.parametrize(
    "change",
    [
        {"hidden_size": 64},
        {"vocab_size": 100},
        {"max_position_embeddings": 1024},
        {"model_type": "qwen3_next"},
    ],
)
def test_the_configuration_of_another_model_is_refused(
    copied: TinySplash, change: dict[str, Any]
) -> None:
    change_config(copied, text_config=change)

    with pytest.raises(ModelKindError, match=rf"text_config\.{next(iter(change))}"):
        opened(copied)


def test_a_configuration_that_names_code_is_refused(copied: TinySplash) -> None:
    change_config(copied, auto_map={"AutoModel": "evil.Model"})

    with pytest.raises(RemoteCodeError, match="auto_map"):
        opened(copied)


def test_rows_that_should_be_zero_are_reported_and_no_obstacle(
    copied: TinySplash,
) -> None:
    path = copied.path / "target" / "head.bin"
    content = bytearray(path.read_bytes())
    start = 32768  # the codes of the head: 320 rows live, the second tile is part full
    unit = 32 * (2 * 256 + 255)  # its first group, last row
    content[start + unit] = 1
    path.write_bytes(content)
    notes: list[str] = []

    dict(target_tensors(opened(copied), notes.append))

    assert notes == ["target/head.bin: what fills its last tiles is not zero"]


def test_a_splash_package_is_told_from_other_directories(
    written: TinySplash, tmp_path: Path
) -> None:
    assert is_splash(written.path)
    assert not is_splash(tmp_path)
    (tmp_path / "manifest.json").write_text('{"files": []}', encoding="utf-8")
    assert not is_splash(tmp_path)
