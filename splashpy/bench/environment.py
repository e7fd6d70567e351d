# SPDX-License-Identifier: Apache-2.0
"""Where and with what a figure was made.

Whatever makes a machine slower is part of it: power source, low-power mode, thermal
state, memory pressure, other programs. Facts that cannot be had are left out.
"""

from __future__ import annotations

import os
import platform
import re
import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from splashpy import blas
from splashpy.host.device import device
from splashpy.units import format_bytes
from splashpy.version import __version__

Ask = Callable[..., str]
"""Runs a program; its output, empty where it fails."""

_PRESSURE = {"1": "normal", "2": "warn", "4": "critical"}
_ANSWER_SECONDS = 5.0


def environment(date: str) -> dict[str, str]:
    """The facts of this process and machine.

    Args:
        date: when the run began.
    """
    found = device(str(blas.prepare()))
    facts = {
        "date": date,
        "machine": f"{platform.system()} {platform.machine()}, {processor()}",
        "gpu_cores": str(found.gpu_cores or ""),
        "memory": format_bytes(found.memory_bytes) if found.memory_bytes else "",
        "system": _system(),
        "load": _load(),
        "blas": found.blas,
        "python": platform.python_version(),
        "splashpy": __version__,
        "mlx": _installed("mlx"),
        "mlx_lm": _installed("mlx-lm"),
    }
    if sys.platform == "darwin":
        facts |= mac_facts(_ask)
    return {name: text for name, text in facts.items() if text}


def processor() -> str:
    """Name and core count of the processor."""
    name = platform.processor() or "unknown processor"
    info = Path("/proc/cpuinfo")
    if sys.platform == "darwin":
        name = _ask("sysctl", "-n", "machdep.cpu.brand_string") or name
    elif info.exists():
        found = re.search(
            r"^model name\s*:\s*(.+)$", info.read_text(encoding="utf-8"), re.MULTILINE
        )
        name = found[1] if found else name
    return f"{name}, {os.cpu_count()} cores"


def mac_facts(ask: Ask) -> dict[str, str]:
    """Power, heat and memory pressure of a Mac.

    Args:
        ask: runs a program.
    """
    power = re.search(r"drawing from '([^']+)'", ask("pmset", "-g", "batt"))
    low_power = re.search(r"lowpowermode\s+(\d)", ask("pmset", "-g"))
    limit = re.search(r"CPU_Speed_Limit\s*=\s*(\d+)", ask("pmset", "-g", "therm"))
    level = ask("sysctl", "-n", "kern.memorystatus_vm_pressure_level")
    return {
        "power": power[1] if power else "",
        "low_power_mode": {"1": "on", "0": "off"}.get(low_power[1]) or ""
        if low_power
        else "",
        "thermal": f"CPU speed limit {limit[1]} %" if limit else "no limit recorded",
        "memory_pressure": _PRESSURE.get(level, level),
    }


def _system() -> str:
    release = platform.mac_ver()[0]
    return f"macOS {release}" if release else platform.platform(terse=True)


def _load() -> str:
    return f"{os.getloadavg()[0]:.1f} in the last minute"


def _installed(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return ""


def _ask(*words: str) -> str:
    try:
        done = subprocess.run(
            words, capture_output=True, text=True, timeout=_ANSWER_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
