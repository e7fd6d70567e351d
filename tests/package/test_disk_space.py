# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from pathlib import Path

import pytest

from splashpy.errors import DiskSpaceError
from splashpy.package.disk_space import MARGIN_BYTES, check_free, free_bytes


def test_more_than_the_disk_has_is_refused_with_numbers(tmp_path: Path) -> None:
    with pytest.raises(DiskSpaceError, match=r"demo needs .* GB of disk, .* is free"):
        check_free("demo", (tmp_path / "not" / "yet" / "there", free_bytes(tmp_path)))


def test_needs_on_one_disk_are_added_up(tmp_path: Path) -> None:
    room = free_bytes(tmp_path) - MARGIN_BYTES
    share = room * 2 // 3

    check_free("half", (tmp_path / "a", share))
    with pytest.raises(DiskSpaceError):
        check_free("both", (tmp_path / "a", share), (tmp_path / "b", share))


def test_nothing_to_write_needs_no_room(tmp_path: Path) -> None:
    check_free("nothing", (tmp_path, 0))
