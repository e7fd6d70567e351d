# SPDX-License-Identifier: Apache-2.0
"""Is there room for what is about to be written?"""

from __future__ import annotations

import shutil
from pathlib import Path

from splashpy.errors import DiskSpaceError
from splashpy.units import format_bytes

MARGIN_BYTES = 2 << 30
"""Disk that must stay free: a full disk stops the whole computer."""


def free_bytes(path: Path) -> int:
    """Free bytes where ``path`` is or would be created."""
    return shutil.disk_usage(_existing(path)).free


def check_free(what: str, *needs: tuple[Path, int]) -> None:
    """Refuse work that would leave less than ``MARGIN_BYTES`` on a disk.

    Args:
        what: what needs the room, for the message.
        needs: (directory, bytes that will be written there); directories on the same
            disk are added up.

    Raises:
        DiskSpaceError: says how much is needed, free, and where.
    """
    per_disk: dict[int, tuple[Path, int]] = {}
    for path, count in needs:
        disk = _existing(path).stat().st_dev
        first, sum_before = per_disk.get(disk, (path, 0))
        per_disk[disk] = (first, sum_before + count)
    for path, count in per_disk.values():
        free = free_bytes(path)
        if count > 0 and free < count + MARGIN_BYTES:
            raise DiskSpaceError(
                f"{what} needs {format_bytes(count + MARGIN_BYTES)} of disk, "
                f"{format_bytes(free)} is free",
                why=f"in {path}; {format_bytes(MARGIN_BYTES)} of it must stay free",
                fix=["splashpy list", "splashpy rm MODEL"],
            )


def _existing(path: Path) -> Path:
    return next(
        folder for folder in (path, *path.absolute().parents) if folder.exists()
    )
