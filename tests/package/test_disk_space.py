# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from splashpy.errors import DiskSpaceError
from splashpy.package.disk_space import (
    MARGIN_BYTES,
    bytes_below,
    check_free,
    free_bytes,
)


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


def test_folders_that_vanish_while_bytes_are_counted_count_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "pip-unpack-1").mkdir()
    (tmp_path / "arrived.whl").write_bytes(b"abc")
    (tmp_path / "gone").symlink_to("nowhere")
    scandir = os.scandir

    def as_pip_tidies_up(path: Any) -> Any:
        if Path(path).name == "pip-unpack-1":
            Path(path).rmdir()
        return scandir(path)

    monkeypatch.setattr(os, "scandir", as_pip_tidies_up)
    assert bytes_below(tmp_path) == 3
    assert bytes_below(tmp_path / "arrived.whl") == 3
    assert bytes_below(tmp_path / "nowhere") == 0
