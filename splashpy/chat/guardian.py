# SPDX-License-Identifier: Apache-2.0
"""Gives the terminal back when the chat is killed and cannot do it itself.

A shell of a few hundred kilobytes waits at a pipe. The chat says goodbye through it at
an ordinary end; a pipe that closes without a word means that the chat was killed, and
the shell writes what switches mouse, paste, keyboard modes and the second screen off
and sets the terminal's settings back.
"""

from __future__ import annotations

import subprocess
import sys
from types import TracebackType
from typing import Self

# What Textual 8.2.8 switches on; the second screen last, as Textual does.
_OFF = "".join(
    f"\\033[{code}"
    for code in (
        "?2004l",
        "?1000l",
        "?1003l",
        "?1015l",
        "?1006l",
        "<u",
        "?1004l",
        "?7h",
        "?25h",
    )
)
_SECOND_SCREEN_OFF = "\\033[?1049l"
# Signals of the terminal's own are for the chat; TTOU would stop a shell that is no
# longer in the foreground while it sets the terminal back.
_SCRIPT = """
trap '' INT HUP TERM QUIT TSTP TTOU
saved=$(stty -g </dev/tty)
read word
[ "$word" = bye ] && exit
printf '%s' >/dev/tty
stty "$saved" </dev/tty
"""
_GOODBYE_SECONDS = 2.0


class Guardian:
    """Watches over the terminal while a block runs.

    Args:
        inline: the chat draws below the prompt, without a second screen.
    """

    def __init__(self, *, inline: bool):
        self._off = _OFF + ("" if inline else _SECOND_SCREEN_OFF)
        self._shell: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        """Start the shell, where there is a terminal and a shell."""
        if sys.__stdin__ is None or not sys.__stdin__.isatty():
            return self
        try:
            self._shell = subprocess.Popen(
                ["/bin/sh", "-c", _SCRIPT.replace("%s", self._off)],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
        except OSError:
            self._shell = None
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Say that everything is in order."""
        if self._shell is None:
            return
        try:
            self._shell.communicate(b"bye\n", timeout=_GOODBYE_SECONDS)
        except subprocess.TimeoutExpired:
            self._shell.kill()
            self._shell.wait()
