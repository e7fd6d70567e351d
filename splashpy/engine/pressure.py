# SPDX-License-Identifier: Apache-2.0
"""How short of memory the whole computer is.

macOS says so itself; on Linux it is read from what the kernel counts as available. A
system that says nothing is never under pressure.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import re
import sys
from pathlib import Path

from splashpy.protocol import Pressure

_MAC_NAME = b"kern.memorystatus_vm_pressure_level"
_MAC_LEVELS: dict[int, Pressure] = {2: "warn", 4: "critical"}
_WARN, _CRITICAL = 0.05, 0.02  # of the memory is available
_MEMINFO = Path("/proc/meminfo")


def pressure() -> Pressure:
    """Of this computer, now."""
    if sys.platform == "darwin":
        return _MAC_LEVELS.get(_mac_level(), "normal")
    try:
        return of_meminfo(_MEMINFO.read_text(encoding="ascii"))
    except OSError:
        return "normal"


def of_meminfo(text: str) -> Pressure:
    """Of a computer whose ``/proc/meminfo`` this is."""
    found = dict(re.findall(r"^(MemTotal|MemAvailable):\s+(\d+)", text, re.MULTILINE))
    if len(found) < 2 or not int(found["MemTotal"]):
        return "normal"
    share = int(found["MemAvailable"]) / int(found["MemTotal"])
    if share < _CRITICAL:
        return "critical"
    return "warn" if share < _WARN else "normal"


def _mac_level() -> int:
    """1, 2 or 4; 0 where the system does not say."""
    library = ctypes.CDLL(ctypes.util.find_library("c"))
    value = ctypes.c_int(0)
    size = ctypes.c_size_t(ctypes.sizeof(value))
    failed = library.sysctlbyname(
        _MAC_NAME, ctypes.byref(value), ctypes.byref(size), None, 0
    )
    return 0 if failed else value.value
