# SPDX-License-Identifier: Apache-2.0
"""How much there is on disk, and is there room for more?"""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from pathlib import Path

from splashpy.errors import DiskSpaceError
from splashpy.units import format_bytes

MARGIN_BYTES = 2 << 30
"""Disk that must stay free: a full disk stops the whole computer."""


def bytes_below(path: Path) -> int:
    """Bytes of a file, or of all files below a folder.

    Files and folders that vanish while they are counted, since another program is at
    work there, count nothing.
    """
    total = 0
    with suppress(OSError):
        total = path.stat().st_size if path.is_file() else 0
    for directory, _, names in os.walk(path):  # passes over what is gone
        for name in names:
            with suppress(OSError):
                total += Path(directory, name).stat().st_size
    return total


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
