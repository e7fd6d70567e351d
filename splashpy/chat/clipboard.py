# SPDX-License-Identifier: Apache-2.0
"""Text to a person's clipboard, by the first way that reaches it.

1. A clipboard program, where the desktop is the one the terminal is shown on: macOS
   Terminal ignores what follows.
2. tmux, which keeps the text in its buffer and hands it to the terminal it runs in.
3. The terminal itself (OSC 52), where the text is not too long for terminals.
4. A file.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

MOST_TERMINAL_BYTES = 74_000 // 4 * 3  # as base64 the most that terminals take
_DESKTOP = (
    ("pbcopy",),
    ("wl-copy",),
    ("xclip", "-selection", "clipboard"),
)
_TMUX = ("tmux", "load-buffer", "-w", "-")
_PATIENCE_SECONDS = 2.0


def programs(*, display: bool, tmux: bool) -> list[Sequence[str]]:
    """The programs to try, in order.

    Args:
        display: programs reach the desktop the terminal is shown on.
        tmux: the terminal is one of tmux.
    """
    return [*(_DESKTOP if display else ()), *((_TMUX,) if tmux else ())]


def copy_with_program(text: str, candidates: Sequence[Sequence[str]]) -> str | None:
    """Hand a text to the first program that takes it.

    Returns:
        The program's name; None when there is none or none worked.
    """
    data = encoded(text)
    for name, *arguments in candidates:
        path = shutil.which(name)
        if path is not None and _fed([path, *arguments], data):
            return Path(path).name
    return None


def encoded(text: str) -> bytes:
    """The text as bytes; a lone surrogate becomes a question mark."""
    return text.encode("utf-8", errors="replace")


def write_file(text: str) -> Path:
    """Put a text into a new file that only its owner may read.

    Raises:
        OSError: it cannot be written.
    """
    number, name = tempfile.mkstemp(prefix="splashpy-", suffix=".md")
    with os.fdopen(number, "wb") as file:
        file.write(encoded(text))
    return Path(name)


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
