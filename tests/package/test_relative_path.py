# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import os.path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from splashpy.package import relative_path


@pytest.mark.parametrize(
    "path",
    [
        *("", ".", "..", "../x", "a/../b", "a/..", "/etc/passwd", "./a", "a//b", "a/"),
        *("a/./b", "a\\b", "c:/x", "*.json", "a?b", "a[0]", "a\nb", "a\0b", "\ud800"),
    ],
)
def test_a_path_that_could_mean_another_file_is_refused(path: str) -> None:
    assert relative_path.problem(path)


def test_a_path_no_disk_takes_costs_no_time() -> None:
    """Every parent of a path is compared with every other path."""
    assert "1024 characters" in relative_path.problem("a/" * 1_000_000 + "b")


@pytest.mark.parametrize(
    "path", ["target/config.json", "README.md", "licenses/a b.txt", "..a", "é/ü"]
)
def test_plain_relative_paths_are_good(path: str) -> None:
    assert relative_path.problem(path) == ""


@given(st.text(alphabet="ab./\\*~ \n", max_size=12))
def test_a_good_path_stays_below_its_directory(path: str) -> None:
    if relative_path.problem(path) == "":
        joined = os.path.normpath(os.path.join("/package", path))  # noqa: PTH118
        assert joined == f"/package/{path}"


@pytest.mark.parametrize(
    ("paths", "conflict"),
    [
        (["a", "b/c"], ""),
        (["a", "a"], "a"),
        (["README.md", "readme.MD"], "readme.MD"),
        (["target", "target/config.json"], "target"),
    ],
)
def test_two_names_for_one_place_are_found(paths: list[str], conflict: str) -> None:
    assert relative_path.first_conflict(paths) == conflict
