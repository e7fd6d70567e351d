# SPDX-License-Identifier: Apache-2.0
"""How much memory the whole computer has left, and whether stored states may grow.

Free memory and what the system gives up without harm, pages of files and purgeable
ones, less a reserve for everybody: that is the *headroom*. When it gets small, whoever
took it, stored states go, and they do not grow before there is enough again: what was
given up is not taken back at once.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import re
import sys
from pathlib import Path

LEAST_BYTES = 1 << 30
"""Headroom below which stored states go."""

ENOUGH_BYTES = 2 << 30
"""Headroom from which on they may grow again."""

_MOST_BYTES = 1 << 30  # given up at a time
_PASS_SECONDS = 1.0  # between two times
_RESERVE_BYTES, _RESERVE_SHARE = 2 << 30, 0.1  # of the memory: the smaller one
_MEMINFO = Path("/proc/meminfo")
_MAC_PAGES = (
    b"vm.page_free_count",
    b"vm.page_pageable_external_count",
    b"vm.page_purgeable_count",
)


class Watermarks:
    """Whether headroom is short, and what has to be given up for it.

    Attributes:
        short: it fell below the lower mark, and did not reach the upper one since.
    """

    def __init__(self) -> None:
        self.short = False
        self._passed_at = float("-inf")

    def see(self, headroom: int | None, now: float) -> int:
        """Take a reading.

        Args:
            headroom: bytes; None where the system does not say.
            now: seconds of any clock that only goes forward.

        Returns:
            Bytes to give up now.
        """
        if headroom is None:
            self.short = False
            return 0
        self.short = headroom < (ENOUGH_BYTES if self.short else LEAST_BYTES)
        missing = LEAST_BYTES - headroom
        if missing <= 0 or now - self._passed_at < _PASS_SECONDS:
            return 0
        self._passed_at = now
        return min(missing, _MOST_BYTES)


def headroom() -> int | None:
    """Of this computer, now; may be negative. None where it does not say."""
    if sys.platform == "darwin":
        return _of_mac()
    try:
        return of_meminfo(_MEMINFO.read_text(encoding="ascii"))
    except OSError:
        return None


def of_meminfo(text: str) -> int | None:
    """Of a computer whose ``/proc/meminfo`` this is."""
    found = dict(re.findall(r"^(MemTotal|MemAvailable):\s+(\d+)", text, re.MULTILINE))
    if len(found) < 2:
        return None
    total, available = (
        int(found[f"Mem{name}"]) << 10 for name in ("Total", "Available")
    )
    return available - reserve(total)


def reserve(total: int) -> int:
    """Bytes of a computer's memory that are left to everybody."""
    return min(int(_RESERVE_SHARE * total), _RESERVE_BYTES)


def _of_mac() -> int | None:
    library = ctypes.CDLL(ctypes.util.find_library("c"))
    numbers = []
    for name in (b"hw.memsize", b"hw.pagesize", *_MAC_PAGES):
        value = ctypes.c_uint64(0)  # narrower ones fill the lower half
        size = ctypes.c_size_t(ctypes.sizeof(value))
        if library.sysctlbyname(
            name, ctypes.byref(value), ctypes.byref(size), None, ctypes.c_size_t(0)
        ):
            return None
        numbers.append(value.value)
    total, page, *pages = numbers
    return page * sum(pages) - reserve(total)
