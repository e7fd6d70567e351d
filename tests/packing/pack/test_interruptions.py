# SPDX-License-Identifier: Apache-2.0
"""Calls that end early, and directories that are there already."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from packing.pack.making import content, local, run

from splashpy.errors import PermissionDeniedError, UsageError
from splashpy.package.manifest import Manifest
from splashpy.package.model_directory import ModelDirectory
from splashpy.package.progress import CancelledError, never, silent
from splashpy.packing import shards
from splashpy.packing.build import hashed_files
from splashpy.packing.pack import PackWish, pack, plan_pack
from splashpy.packing.target_plan import PackingWish
from splashpy.packing.unpack import unpack
from splashpy.protocol import LoadProgress


def test_an_interrupted_call_goes_on_where_it_stopped(
    target: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shards.Shards.write, "__defaults__", (20_000,))
    run(target, None, tmp_path / "whole")
    wish = PackWish(
        target=local(target), draft=None, output=tmp_path / "package", check=False
    )
    steps: list[LoadProgress] = []
    plan = plan_pack(wish)
    half = plan.target.plan.shards.num_bytes // 2

    with pytest.raises(CancelledError):
        pack(plan, steps.append, lambda: bool(steps) and steps[-1].done > half)
    finished = {
        path: path.stat().st_ino
        for path in (tmp_path / "package.partial").rglob("*.safetensors")
    }
    assert len(finished) >= 2
    assert not (tmp_path / "package").exists()
    pack(plan_pack(wish))

    assert content(tmp_path / "package") == content(tmp_path / "whole")
    kept = {p.stat().st_ino for p in (tmp_path / "package").rglob("*.safetensors")}
    assert set(finished.values()) <= kept
    assert not list(tmp_path.glob("*.partial"))
    assert not list(tmp_path.glob(".package*"))


def test_what_another_call_left_is_not_taken_over(target: Path, tmp_path: Path) -> None:
    wish = PackWish(
        target=local(target), draft=None, output=tmp_path / "package", check=False
    )
    with pytest.raises(CancelledError):
        pack(plan_pack(wish), cancelled=lambda: True)
    (tmp_path / "package.partial" / "target" / "model.safetensors").write_bytes(b"old")

    changed = replace(wish, packing=PackingWish(bits=8))
    pack(plan_pack(changed))

    assert ModelDirectory.open(tmp_path / "package").kind == "native"


def test_what_a_killed_call_left_does_not_come_along(
    target: Path, tmp_path: Path
) -> None:
    wish = PackWish(
        target=local(target), draft=None, output=tmp_path / "package", check=False
    )
    with pytest.raises(CancelledError):
        pack(plan_pack(wish), cancelled=lambda: True)
    half = tmp_path / "package.partial" / "target" / ".model.safetensors.part"
    half.write_bytes(b"half")

    pack(plan_pack(wish))

    assert not [name for name in content(tmp_path / "package") if ".part" in name]


def test_a_package_that_is_there_is_replaced_only_when_asked(
    target: Path, tmp_path: Path
) -> None:
    run(target, None, tmp_path / "package")

    with pytest.raises(UsageError, match="is there already"):
        run(target, None, tmp_path / "package")

    run(target, None, tmp_path / "package", force=True, name="new")
    assert Manifest.open(tmp_path / "package").name == "new"


def test_a_directory_of_other_files_is_never_replaced(
    target: Path, tmp_path: Path
) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "letter.txt").write_text("dear")
    run(target, None, tmp_path / "package")

    with pytest.raises(UsageError, match="it is no package"):
        run(target, None, tmp_path / "home", force=True)
    with pytest.raises(UsageError, match="it is no package"):
        unpack(local(tmp_path / "package"), tmp_path / "home", force=True)

    assert (tmp_path / "home" / "letter.txt").read_text() == "dear"


def test_another_package_from_the_same_source_is_not_gone_on_with(
    target: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both name the same source, and one holds other weights."""
    monkeypatch.setattr(shards.Shards.write, "__defaults__", (20_000,))
    given = tmp_path / "given"
    run(target, None, given)
    wish = PackWish(
        target=local(given), draft=None, output=tmp_path / "package", check=False
    )
    steps: list[LoadProgress] = []
    plan = plan_pack(wish)
    most = plan.target.plan.shards.num_bytes * 9 // 10
    with pytest.raises(CancelledError):
        pack(plan, steps.append, lambda: bool(steps) and steps[-1].done > most)
    assert list((tmp_path / "package.partial").rglob("*.safetensors"))

    for path in given.rglob("*.safetensors"):
        weights = bytearray(path.read_bytes())
        weights[-1] ^= 1
        path.write_bytes(weights)
    manifest = Manifest.open(given)
    manifest = replace(manifest, files=hashed_files(given, silent, never))
    (given / "splashpy.json").write_bytes(manifest.to_bytes())
    pack(plan_pack(wish))
    pack(plan_pack(replace(wish, output=tmp_path / "fresh")))

    assert content(tmp_path / "package") == content(tmp_path / "fresh")


def test_a_link_that_had_the_name_is_replaced_and_its_files_stay(
    target: Path, tmp_path: Path
) -> None:
    elsewhere = tmp_path / "elsewhere"
    run(target, None, elsewhere)
    before = content(elsewhere)
    (tmp_path / "package").symlink_to(elsewhere)

    for name in ("new", "newer"):
        run(target, None, tmp_path / "package", force=True, name=name)
        (tmp_path / "package").rename(tmp_path / name)
        (tmp_path / "package").symlink_to(elsewhere)

    assert Manifest.open(tmp_path / "newer").name == "newer"
    assert content(elsewhere) == before
    assert not list(tmp_path.glob(".replaced-*"))


def test_a_source_that_cannot_be_read_is_what_the_error_names(
    target: Path, tmp_path: Path
) -> None:
    wish = PackWish(
        target=local(target), draft=None, output=tmp_path / "package", check=False
    )
    plan = plan_pack(wish)
    gone = target / "tokenizer_config.json"
    gone.unlink()

    with pytest.raises(PermissionDeniedError) as failure:
        pack(plan)

    assert failure.value.message == f"{gone} cannot be read or written"
    assert failure.value.why == "No such file or directory"
