# SPDX-License-Identifier: Apache-2.0
"""Kernels are compiled once, and a machine without a compiler is told so."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest
from msl import building
from msl.cases import CASES
from msl.rewriting import translation_unit


@pytest.fixture
def no_compiler(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A machine without g++ and clang++."""
    monkeypatch.setattr(shutil, "which", lambda name: None)
    building.compiler.cache_clear()
    yield
    building.compiler.cache_clear()


@pytest.mark.usefixtures("no_compiler")
def test_a_missing_compiler_is_named() -> None:
    assert "neither g++ nor clang++ is installed" in building.missing()


def test_one_text_is_one_library(compiler: str) -> None:
    text = translation_unit(CASES["elementwise"].launch().kernel)
    assert building.build(text) == building.build(text)
    assert building.build(text) != building.build(text + "\n")
    assert building.missing() == ""
