# SPDX-License-Identifier: Apache-2.0
"""A package comes apart, and its parts make the same package."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import mlx.core as mx
import pytest
from mlx_lm.utils import load_model
from packing.pack.making import content, local, run

from splashpy.errors import (
    IntegrityError,
)
from splashpy.package.manifest import Manifest
from splashpy.package.model_directory import ModelDirectory
from splashpy.packing.unpack import unpack


@pytest.mark.parametrize("draft_bits", [None, 4])
def test_unpacking_and_packing_again_gives_the_same_bytes(
    target: Path, drafter: Path, tmp_path: Path, draft_bits: int | None
) -> None:
    run(target, drafter, tmp_path / "package", draft_bits=draft_bits, name="pair")

    parts = unpack(local(tmp_path / "package"), tmp_path / "parts")
    assert parts.draft is not None
    run(parts.target, parts.draft, tmp_path / "again")

    assert content(tmp_path / "again") == content(tmp_path / "package")
    run(tmp_path / "again", tmp_path / "again", tmp_path / "third")
    assert content(tmp_path / "third") == content(tmp_path / "package")


def test_what_was_unpacked_is_an_ordinary_model(
    target: Path, drafter: Path, tmp_path: Path
) -> None:
    run(target, drafter, tmp_path / "package")

    parts = unpack(local(tmp_path / "package"), tmp_path / "parts")

    assert ModelDirectory.open(parts.target).kind == "mlx"
    prompt = mx.array([[1, 2, 3]])
    whole, _ = load_model(tmp_path / "package" / "target")
    apart, _ = load_model(parts.target)
    assert mx.array_equal(whole(prompt), apart(prompt))


def test_a_part_that_was_changed_loses_its_origin(target: Path, tmp_path: Path) -> None:
    run(target, None, tmp_path / "package")
    parts = unpack(local(tmp_path / "package"), tmp_path / "parts")
    config = json.loads((parts.target / "config.json").read_text())
    config["rope_theta"] = 20000.0
    (parts.target / "config.json").write_text(json.dumps(config))

    before = Manifest.open(tmp_path / "package").target.source
    after = run(parts.target, None, tmp_path / "again").manifest.target.source

    assert after.revision != before.revision


def test_a_damaged_package_does_not_come_apart(target: Path, tmp_path: Path) -> None:
    run(target, None, tmp_path / "package")
    path = tmp_path / "package" / "target" / "model.safetensors"
    damaged = bytearray(path.read_bytes())
    damaged[-1] ^= 1
    path.write_bytes(damaged)

    with pytest.raises(IntegrityError, match=r"model\.safetensors"):
        unpack(local(tmp_path / "package"), tmp_path / "parts")

    assert not (tmp_path / "parts").exists()
    shutil.rmtree(tmp_path / "package")
