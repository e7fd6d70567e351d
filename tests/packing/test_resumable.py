# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from pathlib import Path

import pytest

from splashpy.errors import DiskSpaceError
from splashpy.package.disk_space import free_bytes
from splashpy.package.progress import CancelledError, never, silent
from splashpy.packing.resumable import check_room, resumable

GIB = 1 << 30


def interrupted(output: Path) -> None:
    with resumable(output, "one", silent, never) as folder:
        (folder / "a").write_text("a")
        raise CancelledError


def test_what_is_written_already_needs_no_room_again(tmp_path: Path) -> None:
    output = tmp_path / "package"
    needed = free_bytes(tmp_path) + GIB
    with pytest.raises(DiskSpaceError, match="packing package"):
        check_room(output, needed)

    (tmp_path / "package.partial" / "target").mkdir(parents=True)
    with (tmp_path / "package.partial" / "target" / "layer-0.bin").open("wb") as file:
        file.truncate(needed - GIB // 2)  # holes: it takes no disk

    check_room(output, GIB)
    with pytest.raises(DiskSpaceError):
        check_room(output, 2 * needed)
    check_room(output, needed)


def test_a_directory_appears_when_nothing_was_raised(tmp_path: Path) -> None:
    output = tmp_path / "package"
    with pytest.raises(CancelledError):
        interrupted(output)
    assert not output.exists()
    with resumable(output, "one", silent, never) as folder:
        assert (folder / "a").read_text() == "a"
        (folder / "b").write_text("b")

    assert sorted(path.name for path in output.iterdir()) == ["a", "b"]
    assert [path.name for path in tmp_path.iterdir()] == ["package"]


def test_files_made_for_something_else_are_dropped(tmp_path: Path) -> None:
    output = tmp_path / "package"
    with pytest.raises(CancelledError):
        interrupted(output)

    with resumable(output, "two", silent, never) as folder:
        assert list(folder.iterdir()) == []
