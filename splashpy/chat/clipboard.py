# SPDX-License-Identifier: Apache-2.0
"""Text to the system's clipboard, by the programs that are there.

A terminal can also set the clipboard (OSC 52), but macOS Terminal ignores that. So a
local session asks the system first; over ssh only the terminal is on the right machine.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

_PROGRAMS = (
    ("pbcopy",),
    ("wl-copy",),
    ("xclip", "-selection", "clipboard"),
)
_PATIENCE_SECONDS = 2.0


def copy_with_program(text: str) -> str | None:
    """Hand a text to the first clipboard program that takes it.

    Returns:
        The program's name; None when there is none or none worked.
    """
    data = text.encode("utf-8", errors="replace")
    for name, *arguments in _PROGRAMS:
        path = shutil.which(name)
        if path is not None and _fed([path, *arguments], data):
            return Path(path).name
    return None


def _fed(command: list[str], data: bytes) -> bool:
    try:
        # Their output goes nowhere: xclip keeps it open for as long as it lives.
        done = subprocess.run(
            command,
            input=data,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=_PATIENCE_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0
