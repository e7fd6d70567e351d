# SPDX-License-Identifier: Apache-2.0
"""The chat on a real terminal with a real engine that is killed."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = pytest.mark.e2e

SECONDS = 120
CTRL_Q, CTRL_R, ENTER = b"\x11", b"\x12", b"\r"


class Terminal:
    """A terminal of 100 columns and 30 rows with the chat in it."""

    def __init__(self, environment: dict[str, str]):
        self.ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 100, 0, 0))
        self.program = subprocess.Popen(
            [sys.executable, "-m", "splashpy", "chat", "demo", "--temp", "0"],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env={**environment, "TERM": "xterm-256color"},
            start_new_session=True,
        )
        os.close(theirs)
        self.shown = ""

    def press(self, keys: bytes) -> None:
        os.write(self.ours, keys)

    def wait_for(self, words: str) -> None:
        """Read until the words have been drawn since the last wait."""
        deadline = time.perf_counter() + SECONDS
        while words not in self.shown:
            left = deadline - time.perf_counter()
            assert left > 0, f"{words!r} did not appear: {self.shown[-2000:]!r}"
            if select.select([self.ours], [], [], left)[0]:
                raw = os.read(self.ours, 65536).decode(errors="replace")
                self.shown += re.sub(r"\x1b\[[0-9;?<>=]*[a-zA-Z]", "", raw)
        self.shown = self.shown.partition(words)[2]

    def engine(self) -> int:
        """Process id of the engine child."""
        for path in Path("/proc").glob("[0-9]*/stat"):
            fields = path.read_text().rpartition(")")[2].split()
            if int(fields[1]) == self.program.pid:
                return int(path.parent.name)
        raise AssertionError("the chat has no child")


@pytest.fixture
def terminal(environment: dict[str, str]) -> Iterator[Terminal]:
    terminal = Terminal(environment)
    yield terminal
    terminal.program.kill()
    terminal.program.wait()
    os.close(terminal.ours)


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="finds the engine in /proc")
def test_a_killed_engine_is_told_the_text_is_kept_and_a_restart_works(
    terminal: Terminal,
) -> None:
    terminal.wait_for("loading weights")
    terminal.press(b"Write a long story about a fox." + ENTER)
    terminal.wait_for("tok/s")
    first = terminal.engine()
    os.kill(first, signal.SIGKILL)
    terminal.wait_for("killed by signal 9")
    terminal.press(CTRL_R)
    terminal.press(b"Name three primary colours." + ENTER)
    terminal.wait_for("Yellow")
    assert terminal.engine() != first
    terminal.press(CTRL_Q)
    assert terminal.program.wait(30) == 0
