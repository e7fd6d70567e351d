# SPDX-License-Identifier: Apache-2.0
"""The bytes a real terminal gets from the real program."""

from __future__ import annotations

import json
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable
from dataclasses import replace
from fcntl import ioctl
from pathlib import Path

import pytest

from splashpy.chat.keeper import utc_now
from splashpy.chat.store import opened
from splashpy.client.replay import read_recording
from splashpy.errors import EngineDiedError
from splashpy.wire import to_line

PROGRAM = """
import sys
from pathlib import Path
from splashpy.chat.app import ChatSettings, run_chat
from splashpy.client.replay import ReplayClient
from splashpy.protocol import Load

recording = Path(sys.argv[1])
sys.exit(run_chat(
    lambda: ReplayClient(recording, speed=50),
    Load(model="/models/demo", name="de\\x1b]0;owned\\x07mo"),
    settings=ChatSettings(remote=True, title="ti\\x1b]0;owned\\x07tle"),
    first_message="quest\\x1b]0;owned\\x07ion",
))
"""
SAVING = PROGRAM.replace(
    "    settings=",
    "    keeper=Keeper(recording.with_name('chats.db')),\n    settings=",
).replace("import sys", "import sys\nfrom splashpy.chat.keeper import Keeper")
ATTACKS = (
    b"\x1b]0;owned",
    b"owned\x07",
    b"\x1b]8;;",
    b"\x1b[31mred",
    "\x9b".encode(),
    "\u202e".encode(),
)
# What a parser of markup, HTML or TeX would have eaten.
LITERAL = (
    b"[/INST] [bold [1] [key=value] [red]not red[/red]",
    b"a<b>c, Vec<T>, <div>x</div>",
    b"\\(a\\)",
)
PATIENCE_SECONDS = 90.0
# What undoes everything the screen switches on; taken from Textual 8.2.8.
RESTORED = (b"\x1b[?1049l", b"\x1b[?25h", b"\x1b[?2004l", b"\x1b[?1000l")


class Terminal:
    """A program on a pseudo terminal; collects what it writes."""

    def __init__(
        self, recording: Path, *, below: tuple[str, ...] = (), program: str = PROGRAM
    ) -> None:
        self._master, slave = pty.openpty()
        ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 100, 0, 0))
        self.program = subprocess.Popen(
            [*below, sys.executable, "-c", program, str(recording)],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env=os.environ | {"TERM": "xterm-256color", "COLORTERM": "truecolor"},
        )
        self.slave = os.dup(slave) if below else -1
        os.close(slave)
        self.written = b""

    def press(self, keys: bytes) -> None:
        os.write(self._master, keys)

    def vanish(self) -> None:
        os.close(self._master)
        self._master = os.open(os.devnull, os.O_RDWR)

    def read_until(self, true: Callable[[], object]) -> None:
        end = time.perf_counter() + PATIENCE_SECONDS
        while not true():
            assert time.perf_counter() < end, self.written[-2000:]
            if select.select([self._master], [], [], 0.1)[0]:
                try:
                    self.written += os.read(self._master, 65536)
                except OSError:  # Linux: the program closed its end
                    break

    def close(self) -> None:
        self.program.kill()
        self.program.wait()
        if self.slave >= 0:
            os.close(self.slave)
        os.close(self._master)


@pytest.fixture
def terminal(replays: Path):
    terminal = Terminal(replays / "hostile.ndjson")
    yield terminal
    terminal.close()


def test_no_byte_of_content_is_a_control_sequence(terminal: Terminal) -> None:
    shown = b"prompt cached"
    terminal.read_until(lambda: shown in terminal.written)
    terminal.press(b"\x11")  # ctrl+q
    terminal.read_until(lambda: terminal.program.poll() is not None)

    written = terminal.written
    assert "␛]0;owned␇".encode() in written
    for attack in (
        b"\x1b]0;owned",
        b"\x1b]8;;",
        b"\x1b[31mred",
        b"\xc2\x9b",
        b"owned\x07",
    ):
        assert attack not in written
    for text in LITERAL:
        assert text in written


def test_leaving_restores_the_terminal_after_keys_that_are_no_text(
    terminal: Terminal,
) -> None:
    terminal.read_until(lambda: b"ctrl+j new line" in terminal.written)
    terminal.press(b"\xff\xe9 typed on")
    terminal.read_until(lambda: b"typed on" in terminal.written)
    terminal.press(b"\x11")
    terminal.read_until(lambda: all(code in terminal.written for code in RESTORED))

    assert terminal.program.wait(PATIENCE_SECONDS) == 0


def test_a_terminal_that_vanished_without_a_signal_ends_the_chat(
    terminal: Terminal,
) -> None:
    terminal.read_until(lambda: b"ctrl+j new line" in terminal.written)
    terminal.vanish()
    assert terminal.program.wait(PATIENCE_SECONDS) == 128 + signal.SIGHUP


SHELL = """
import os, subprocess, sys
from fcntl import ioctl
from pathlib import Path
from termios import TIOCSCTTY
os.setsid()
ioctl(0, TIOCSCTTY, 0)
program = subprocess.Popen(sys.argv[2:])
Path(sys.argv[1]).write_text(str(program.pid))
program.wait()
Path(sys.argv[1]).unlink()
sys.stdin.read()
"""
"""Owns the terminal as a shell does, and outlives what it runs, whose end it sees."""


def test_a_killed_chat_gives_the_terminal_back_and_keeps_what_was_written(
    replays: Path, tmp_path: Path
) -> None:
    *timed, done = read_recording(replays / "hostile.ndjson")
    recording = tmp_path / "recording"
    with recording.open("wb") as file:
        for item in (*timed, replace(done, t=1e6)):
            assert not isinstance(item.event, EngineDiedError)
            fields = json.loads(to_line(item.event)) | {"t": item.t}
            file.write(json.dumps(fields).encode() + b"\n")
    shell = (sys.executable, "-c", SHELL, str(tmp_path / "pid"))
    terminal = Terminal(recording, below=shell, program=SAVING)
    before = termios.tcgetattr(terminal.slave)
    terminal.read_until(lambda: LITERAL[1] in terminal.written)
    assert termios.tcgetattr(terminal.slave) != before
    terminal.written = b""

    with opened(tmp_path / "chats.db", now=utc_now) as store:
        # What an answer writes is on disk within a second.
        end = time.perf_counter() + PATIENCE_SECONDS
        while "Vec<T>" not in store.read(store.latest() or "").messages[-1].content:
            assert time.perf_counter() < end
            select.select([], [], [], 0.05)
    os.kill(int((tmp_path / "pid").read_text()), signal.SIGKILL)
    terminal.read_until(lambda: all(code in terminal.written for code in RESTORED))

    end = time.perf_counter() + PATIENCE_SECONDS
    # Until its parent has seen it end, a killed process is still one of the system's.
    while termios.tcgetattr(terminal.slave) != before or (tmp_path / "pid").exists():
        assert time.perf_counter() < end
        select.select([], [], [], 0.05)
    terminal.close()
    with opened(tmp_path / "chats.db", now=utc_now) as store:
        assert store.recover() == 1
        assert store.read(store.latest() or "").messages[-1].state == "partial"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_signal_ends_the_chat_and_restores_the_terminal(
    terminal: Terminal, number: signal.Signals
) -> None:
    terminal.read_until(lambda: b"ctrl+j new line" in terminal.written)
    terminal.program.send_signal(number)
    terminal.read_until(lambda: all(code in terminal.written for code in RESTORED))

    assert terminal.program.wait(PATIENCE_SECONDS) == 128 + number


WITH_AN_ENGINE = """
import sys
from pathlib import Path
from splashpy.chat.app import ChatSettings, run_chat
from splashpy.client.child import ChildClient
from splashpy.protocol import Load

folder = Path(sys.argv[1])

def connect():
    client = ChildClient.spawn(folder / "engine.log")
    (folder / "engine").write_text(str(client.process.pid))
    return client

sys.exit(run_chat(
    connect, Load(model="/no/model"), settings=ChatSettings(remote=True)
))
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_killed_chat_leaves_no_engine_behind(
    tmp_path: Path, number: signal.Signals
) -> None:
    shell = (sys.executable, "-c", SHELL, str(tmp_path / "pid"))
    terminal = Terminal(tmp_path, below=shell, program=WITH_AN_ENGINE)
    try:
        # The engine has answered: it could not load the model.
        terminal.read_until(lambda: b"not loaded" in terminal.written)
        engine = int((tmp_path / "engine").read_text())
        assert runs(engine)
        terminal.written = b""
        os.kill(int((tmp_path / "pid").read_text()), number)
        terminal.read_until(lambda: all(code in terminal.written for code in RESTORED))
        end = time.perf_counter() + PATIENCE_SECONDS
        while runs(engine):
            assert time.perf_counter() < end
            select.select([], [], [], 0.05)
    finally:
        terminal.close()


def runs(process: int) -> bool:
    """Whether a process is there and not only waits to be buried."""
    told = subprocess.run(
        ["ps", "-o", "stat=", "-p", str(process)],
        capture_output=True,
        text=True,
        check=False,
    )
    return bool(told.stdout.strip()) and not told.stdout.startswith("Z")


def test_an_inline_chat_leaves_the_screen_of_the_shell_alone(replays: Path) -> None:
    program = PROGRAM.replace("remote=True,", "remote=True, inline=True,")
    terminal = Terminal(replays / "hostile.ndjson", program=program)
    try:
        terminal.read_until(lambda: b"prompt cached" in terminal.written)
        terminal.press(b"\x11")
        terminal.read_until(lambda: terminal.program.poll() is not None)
        assert b"\x1b[?1049h" not in terminal.written
        assert b"\x1b[?25h" in terminal.written
    finally:
        terminal.close()
