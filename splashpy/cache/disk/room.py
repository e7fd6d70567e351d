# SPDX-License-Identifier: Apache-2.0
"""How much the cache on disk may take, and what goes when that is too little."""

from __future__ import annotations

import shutil
from contextlib import suppress
from pathlib import Path

from splashpy.cache.disk.catalogue import Catalogue, Entry
from splashpy.cache.disk.directory import in_use, records_below, remove

EXPIRY_SECONDS = 7 * 24 * 3600.0
"""A record nobody used for so long is deleted."""

_LARGEST = 16 << 30
_LEAST_FREE = 10 << 30
_SHARE = 10  # of the free space: a tenth
_DAY_BYTES = 64 << 30  # an SSD wears out
_BURST_BYTES = 8 << 30
_DAY_SECONDS = 24 * 3600.0


def default_quota(root: Path) -> int:
    """Bytes the cache may take where nobody said.

    0 where the disk is nearly full, or does not say how full it is.
    """
    try:
        existing = next(path for path in (root, *root.parents) if path.exists())
        free = shutil.disk_usage(existing).free
    except OSError:
        return 0
    return 0 if free < _LEAST_FREE else min(_LARGEST, free // _SHARE)


def others_bytes(root: Path, own: Path) -> dict[Path, int]:
    """Bytes of every other namespace's records."""
    sizes: dict[Path, int] = {}
    with suppress(OSError):
        for path in root.iterdir():
            if path != own and path.is_dir():
                sizes[path] = _size(path)
    return sizes


def _size(path: Path) -> int:
    """Bytes of a namespace's records, which an engine may be changing."""
    size = 0
    for _, file in records_below(path):
        with suppress(OSError):
            size += file.stat().st_size
    return size


def sweep_others(root: Path, own: Path, quota: int, now: float) -> int:
    """Delete other namespaces that expired, or have to make room.

    Those in use stay, and so do the latest ones within half of the quota.

    Returns:
        Bytes of those that stay.
    """
    sizes = others_bytes(root, own)
    left = sum(sizes.values())
    for path in sorted(sizes, key=_last_use):
        expired = now - _last_use(path) > EXPIRY_SECONDS
        if (expired or left > quota // 2) and not in_use(path):
            with suppress(OSError):
                remove(path)
                left -= sizes[path]
    return left


def expired(catalogue: Catalogue, now: float) -> list[Entry]:
    """Records nobody used for long, those that need others before the others."""
    old = [e for e in catalogue.entries() if now - e.used > EXPIRY_SECONDS]
    ranks = {"draft": 0, "state": 1, "block": 2}
    return sorted(old, key=lambda entry: (ranks[entry.kind], -entry.position))


def oldest_leaf(catalogue: Catalogue, kept: set[bytes]) -> Entry | None:
    """The record used longest ago that no other needs; None where all must stay.

    Args:
        catalogue: of the records.
        kept: names that must stay.
    """
    leaves = [
        entry
        for entry in catalogue.entries()
        if catalogue.is_leaf(entry) and entry.name not in kept
    ]
    return min(leaves, key=lambda entry: (entry.used, -entry.position), default=None)


class WriteAllowance:
    """Bytes that may be written: a burst, refilled over a day.

    Args:
        now: seconds of any clock that only goes forward.
    """

    def __init__(self, now: float) -> None:
        self._left = float(_BURST_BYTES)
        self._at = now

    def take(self, count: int, now: float) -> bool:
        """Whether ``count`` more bytes may be written now; counts them if so."""
        gained = (now - self._at) / _DAY_SECONDS * _DAY_BYTES
        self._left = min(self._left + max(gained, 0.0), float(_BURST_BYTES))
        self._at = now
        if count > self._left:
            return False
        self._left -= count
        return True


def _last_use(path: Path) -> float:
    times = [0.0]
    for name in ("index.sqlite", "index.sqlite-wal", "NAMESPACE.json"):
        with suppress(OSError):
            times.append((path / name).stat().st_mtime)
    return max(times)
