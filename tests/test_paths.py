# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from pathlib import Path

import pytest

from splashpy.paths import Paths


def test_one_variable_puts_everything_under_one_directory(tmp_path: Path) -> None:
    paths = Paths.default({"SPLASHPY_HOME": str(tmp_path)})
    assert paths == Paths.under(tmp_path)
    assert paths.packages == tmp_path / "data" / "packages"


def test_another_moves_what_may_be_deleted(tmp_path: Path) -> None:
    paths = Paths.default({"SPLASHPY_CACHE": str(tmp_path)})
    assert paths.cache == tmp_path
    assert paths.data == Paths.default({}).data


def test_a_relative_home_means_the_directory_it_was_given_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert Paths.default({"SPLASHPY_HOME": "here"}).data == tmp_path / "here" / "data"


def test_the_environment_decides_when_nothing_else_is_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPLASHPY_HOME", str(tmp_path))
    assert Paths.default() == Paths.under(tmp_path)
