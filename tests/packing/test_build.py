# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import dataclasses
import json
import os
import signal
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import IO

import mlx.core as mx
import pytest
from packing.conftest import TinyRecipe

from splashpy.errors import DiskSpaceError, OfflineError, PermissionDeniedError
from splashpy.package.integrity import check_files
from splashpy.package.manifest import Manifest
from splashpy.package.model_directory import ModelDirectory
from splashpy.package.progress import CancelledError
from splashpy.packing.build import RECIPE_KEY, build, is_current
from splashpy.packing.fetch import Supply
from splashpy.packing.recipe import Recipe
from splashpy.protocol import LoadProgress, Sampling


def at(hour: int) -> datetime:
    return datetime(2026, 1, 31, hour, tzinfo=UTC)


@pytest.fixture
def destination(tmp_path: Path) -> Path:
    return tmp_path / "packages" / "tiny"


@pytest.fixture
def supply(tiny: TinyRecipe, tmp_path: Path) -> Supply:
    return tiny.supply(tmp_path / "cache")


def contents(directory: Path) -> dict[str, bytes]:
    return {
        path.relative_to(directory).as_posix(): path.read_bytes()
        for path in sorted(directory.rglob("*"))
        if path.is_file()
    }


def neighbours(destination: Path) -> list[str]:
    names = (path.name for path in destination.parent.iterdir())
    return sorted(name for name in names if not name.endswith(".lock"))


def test_a_built_package_is_complete_and_says_where_it_is_from(
    tiny: TinyRecipe, destination: Path, supply: Supply
) -> None:
    assert build(tiny.recipe, destination, supply, clock=lambda: at(12)) == destination

    manifest = Manifest.open(destination)
    check_files(destination, manifest, full=True)
    assert set(contents(destination)) == {
        *("splashpy.json", "README.md", "NOTICE", "licenses/target.txt"),
        *("target/config.json", "target/model.safetensors"),
        *("tokenizer/tokenizer.json", "tokenizer/tokenizer_config.json"),
        *("tokenizer/generation_config.json", "tokenizer/chat_template.jinja"),
    }
    assert manifest.created_at == "2026-01-31T12:00:00Z"
    assert manifest.created_with[RECIPE_KEY] == tiny.recipe.digest
    assert manifest.target.source == tiny.source.as_source()
    assert manifest.target.license.text == "licenses/target.txt"
    assert manifest.target.cache_kinds == ("kv", "kv")
    assert (manifest.draft, manifest.pairing) == (None, None)
    roles = {entry.path: entry.role for entry in manifest.files}
    assert roles["target/model.safetensors"] == "weights"
    assert roles["target/config.json"] == "config"
    assert roles["tokenizer/tokenizer.json"] == "tokenizer"


def test_a_built_package_opens_as_a_model(
    tiny: TinyRecipe, destination: Path, supply: Supply
) -> None:
    model = ModelDirectory.open(build(tiny.recipe, destination, supply))

    assert (model.kind, model.model_type, model.context_max) == ("native", "llama", 128)
    assert model.sampling == Sampling(temperature=0.5)
    assert model.eos_token_ids() == (0,)


def test_the_same_inputs_give_the_same_bytes(
    tiny: TinyRecipe, destination: Path, supply: Supply
) -> None:
    one = contents(build(tiny.recipe, destination, supply, clock=lambda: at(1)))
    other_place = destination.with_name("other")
    other = contents(build(tiny.recipe, other_place, supply, clock=lambda: at(2)))

    differing = {name for name in one if one[name] != other[name]}
    assert differing == {"splashpy.json"}
    first, second = json.loads(one["splashpy.json"]), json.loads(other["splashpy.json"])
    assert {key for key in first if first[key] != second[key]} == {"created_at"}


def test_the_smoke_test_is_recorded(
    tiny: TinyRecipe, destination: Path, supply: Supply
) -> None:
    check = Manifest.open(build(tiny.recipe, destination, supply)).check

    assert check is not None
    assert len(check.prompt_token_ids) == 3  # "th", "a", "t"
    assert len(check.token_ids) == 4
    assert check.device == ("cpu" if mx.default_device() == mx.cpu else "metal")


def test_a_current_package_is_left_as_it_is(
    tiny: TinyRecipe, destination: Path, supply: Supply
) -> None:
    build(tiny.recipe, destination, supply)
    before = contents(destination)
    steps: list[LoadProgress] = []

    build(tiny.recipe, destination, supply, progress=steps.append)

    assert contents(destination) == before
    assert steps == []


def test_a_package_of_an_older_recipe_is_replaced(
    tiny: TinyRecipe, destination: Path, supply: Supply
) -> None:
    build(tiny.recipe, destination, supply)
    (tiny.folder / "NOTICE").write_text("a new notice", encoding="utf-8")
    recipe = Recipe.load(tiny.folder / "recipe.toml")
    assert not is_current(destination, recipe)

    build(recipe, destination, supply)

    assert (destination / "NOTICE").read_text(encoding="utf-8") == "a new notice"
    assert neighbours(destination) == ["tiny"]


def test_phases_come_in_order(
    tiny: TinyRecipe, destination: Path, supply: Supply
) -> None:
    steps: list[LoadProgress] = []

    build(tiny.recipe, destination, supply, progress=steps.append)

    phases = [step.phase for step in steps]
    changes = [phase for i, phase in enumerate(phases) if phases[i - 1 : i] != [phase]]
    assert changes == ["verify", "prepare", "verify"]  # source, parts, package
    assert steps[-1].done == steps[-1].total


@pytest.mark.parametrize("phase", ["verify", "prepare"])
def test_stopping_leaves_nothing_behind(
    tiny: TinyRecipe, destination: Path, supply: Supply, phase: str
) -> None:
    phases: list[str] = []

    with pytest.raises(CancelledError):
        build(
            tiny.recipe,
            destination,
            supply,
            progress=lambda step: phases.append(step.phase),
            cancelled=lambda: phase in phases,
        )

    assert neighbours(destination) == []


def test_a_full_disk_is_refused_before_anything_is_written(
    tiny: TinyRecipe,
    destination: Path,
    supply: Supply,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("splashpy.package.disk_space.MARGIN_BYTES", 1 << 60)

    with pytest.raises(DiskSpaceError, match="Tiny needs"):
        build(tiny.recipe, destination, supply)

    assert neighbours(destination) == []


def test_a_place_that_cannot_be_written_is_named(
    tiny: TinyRecipe, tmp_path: Path, supply: Supply
) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")

    with pytest.raises(PermissionDeniedError, match="cannot be read or written"):
        build(tiny.recipe, tmp_path / "file" / "tiny", supply)


def test_the_next_source_is_named_when_the_first_cannot_be_had(
    tiny: TinyRecipe, destination: Path, tmp_path: Path
) -> None:
    other = dataclasses.replace(tiny.source, package="other-weights")
    recipe = dataclasses.replace(tiny.recipe, sources=(tiny.source, other))

    with pytest.raises(OfflineError, match="splashpy-test-weights") as failure:
        build(recipe, destination, Supply(tmp_path / "empty", offline=True))

    assert "also tried: other-weights 1.0" in failure.value.why


CHILD = """
import sys
from pathlib import Path
from splashpy.packing.build import build
from splashpy.packing.fetch import Supply
from splashpy.packing.recipe import Recipe

def stop(step):
    if step.unit == "tensors" and "block" in sys.argv:
        print("half way", flush=True)
        sys.stdin.read()

recipe, destination, cache = map(Path, sys.argv[1:4])
supply = Supply(cache, offline=True)
build(Recipe.load(recipe / "recipe.toml"), destination, supply, progress=stop)
print("built", flush=True)
"""


def start_builder(
    tiny: TinyRecipe, destination: Path, supply: Supply, *words: str
) -> subprocess.Popen[str]:
    arguments = [str(tiny.folder), str(destination), str(supply.cache), *words]
    return subprocess.Popen(
        [sys.executable, "-c", CHILD, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def stream(pipe: IO[str] | None) -> IO[str]:
    assert pipe is not None
    return pipe


def test_a_killed_build_is_taken_up_by_the_next(
    tiny: TinyRecipe, destination: Path, supply: Supply
) -> None:
    with start_builder(tiny, destination, supply, "block") as child:
        assert stream(child.stdout).readline() == "half way\n"
        os.kill(child.pid, signal.SIGKILL)
    assert child.returncode == -signal.SIGKILL
    assert neighbours(destination) == ["tiny.partial"]

    build(tiny.recipe, destination, supply)

    assert neighbours(destination) == ["tiny"]
    check_files(destination, Manifest.open(destination), full=True)


def test_a_second_builder_waits_and_says_for_whom(
    tiny: TinyRecipe, destination: Path, supply: Supply
) -> None:
    waiting: list[str] = []
    with start_builder(tiny, destination, supply, "block") as child:
        assert stream(child.stdout).readline() == "half way\n"

        with pytest.raises(CancelledError):
            build(
                tiny.recipe,
                destination,
                supply,
                progress=lambda step: waiting.append(step.item),
                cancelled=lambda: bool(waiting),
            )

        assert waiting == [f"waiting for process {child.pid}"]
        stream(child.stdin).close()
        assert stream(child.stdout).read().endswith("built\n")
    assert neighbours(destination) == ["tiny"]


def test_two_builders_at_once_make_one_package(
    tiny: TinyRecipe, destination: Path, supply: Supply
) -> None:
    children = [start_builder(tiny, destination, supply) for _ in range(2)]
    outputs = [child.communicate()[0] for child in children]

    assert outputs == ["built\n", "built\n"]
    assert neighbours(destination) == ["tiny"]
    check_files(destination, Manifest.open(destination), full=True)


def test_a_damaged_source_is_deleted_so_that_a_rerun_fetches_it(
    tiny: TinyRecipe, destination: Path, supply: Supply
) -> None:
    file = supply._file(tiny.source)
    file.write_bytes(bytes(file.stat().st_size))

    with pytest.raises(OfflineError):
        build(tiny.recipe, destination, supply)

    assert not file.exists()
    assert neighbours(destination) == []
