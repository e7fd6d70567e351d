# SPDX-License-Identifier: Apache-2.0
"""When ``splashpy chat`` is a screen, when lines, and when one answer."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import tiny
from commandline import LIMIT, Call, Record, Start, finish, on_terminal

from splashpy.cli.attach import server_of
from splashpy.protocol import Load
from splashpy.server.registry import RunningServer

REPLAY = ("--speed", "0", "--replay")


def test_words_without_a_terminal_are_answered_once(call: Call, record: Record) -> None:
    result = call("chat", "Name a colour.", *REPLAY, str(record("Red.")))

    assert (result.code, result.out) == (0, "Red.\n")


def test_neither_terminal_nor_words_is_an_error_that_names_run(call: Call) -> None:
    result = call("chat")

    assert result.code == 2
    assert "[E-TTY]" in result.err
    assert "splashpy run demo" in result.err


def test_chat_has_no_json(call: Call) -> None:
    assert call("chat", "Hi there", "--json").code == 2


@pytest.mark.e2e
def test_piped_text_is_answered_once_where_stdout_is_no_terminal(
    start: Start, record: Record
) -> None:
    process = start("chat", *REPLAY, str(record("Red.")), stdin=subprocess.PIPE)
    out, _ = process.communicate(b"Name a colour.", timeout=LIMIT)

    assert (process.returncode, out) == (0, b"Red.\n")


@pytest.mark.e2e
def test_nobody_at_the_keyboard_means_one_answer_even_on_a_terminal(
    start: Start, record: Record
) -> None:
    words = ("chat", "Name a colour.", *REPLAY, str(record("Red.")))
    code, shown = on_terminal(start, *words, stdin=subprocess.DEVNULL, TERM="xterm")

    assert code == 0
    assert shown.endswith("Red.\r\n")
    assert "\x1b[?1049h" not in shown


OWN_TERMINAL = """
import fcntl, os, sys, termios
os.setsid()
fcntl.ioctl(1, termios.TIOCSCTTY, 0)
os.execv(sys.executable, [sys.executable, "-m", "splashpy", *sys.argv[1:]])
"""
"""Makes the terminal of stdout the one that /dev/tty means."""


@pytest.mark.e2e
@pytest.mark.parametrize("plain", [(), ("--plain",)])
def test_piped_text_is_the_first_message_and_keys_come_from_the_terminal(
    start: Start, record: Record, plain: tuple[str, ...]
) -> None:
    reading, writing = os.pipe()
    os.write(writing, b"Name a colour.")
    os.close(writing)
    code, shown = on_terminal(
        start,
        *("chat", *plain, *REPLAY, str(record("Vermilion."))),
        typed=(("Vermilion", b"\x04" if plain else b"\x11"),),
        stdin=reading,
        program=("-c", OWN_TERMINAL),
        TERM="xterm-256color",
    )
    os.close(reading)

    assert code == 0
    assert "Name a colour." in shown
    assert ("\x1b[?1049h" in shown) is not bool(plain)


@pytest.mark.e2e
def test_a_log_that_cannot_be_written_is_told_before_the_screen_opens(
    start: Start, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    model = tiny.write_model(tmp_path / "model")
    home = str(tmp_path / "file" / "below")
    code, shown = on_terminal(
        start, "chat", str(model), SPLASHPY_HOME=home, TERM="xterm", NO_COLOR="1"
    )

    assert code == 1
    assert "[E-PERM]" in shown
    assert "\x1b[?1049h" not in shown


@pytest.mark.e2e
def test_a_blas_that_cannot_be_loaded_is_told_as_run_tells_it(
    start: Start, tmp_path: Path
) -> None:
    model = str(tiny.write_model(tmp_path / "model"))
    wrong = {"SPLASHPY_BLAS": "/no/such/library.so"}
    code, shown = on_terminal(start, "chat", model, **wrong, TERM="dumb")
    told = finish(start("run", model, "hi", **wrong))

    assert (code, told[0]) == (2, 2)
    assert "SPLASHPY_BLAS=/no/such/library.so cannot be loaded" in shown
    assert shown.replace("\r\n", "\n") == told[2]


SPAWNED_FIRST = """
import sys
from pathlib import Path
from splashpy.cli import main
from splashpy.client import child

class Stop(Exception):
    pass

def spawn(log, env=None):
    print("textual" in sys.modules, "mlx" in sys.modules, log.name)
    raise Stop

child.ChildClient.spawn = spawn
from splashpy.cli import chat, writing
from splashpy.protocol import Load
chat._keyboard = lambda piped: True
chat._load_command = lambda *_: Load(model="x")
sys.stdout.isatty = lambda: True
main(["chat"])
"""


@pytest.mark.e2e
def test_the_engine_is_started_before_the_screen_is_imported() -> None:
    done = subprocess.run(
        [sys.executable, "-c", SPAWNED_FIRST],
        capture_output=True,
        text=True,
        check=False,
        timeout=LIMIT,
    )
    assert done.stdout == "False False engine.log\n"


@pytest.mark.e2e
def test_a_chat_on_a_terminal_answers_and_leaves_the_terminal_as_it_was(
    start: Start, record: Record
) -> None:
    words = ("chat", "Name a colour.", *REPLAY, str(record("Vermilion.")))
    code, shown = on_terminal(
        start, *words, typed=(("Vermilion", b"\x11"),), TERM="xterm-256color", CI=""
    )

    assert code == 0
    assert "\x1b[?1049h" in shown
    assert shown.rstrip().rpartition("\x1b[?1049h")[2].count("\x1b[?1049l") == 1


@pytest.mark.e2e
@pytest.mark.parametrize("variables", [{"TERM": "dumb"}, {"CI": "1"}])
def test_where_a_screen_does_not_fit_chat_works_in_lines(
    start: Start, record: Record, variables: dict[str, str]
) -> None:
    words = ("chat", "Name a colour.", *REPLAY, str(record("Vermilion.")))
    code, shown = on_terminal(
        start, *words, typed=(("Vermilion", b"\x04"),), **variables
    )

    assert code == 0
    assert "\x1b[?1049h" not in shown


def test_one_answer_does_not_ask_a_server(call: Call) -> None:
    result = call("chat", "Hi there", "--url", "localhost:8080")

    assert result.code == 2
    assert "--url" in result.err


def test_a_model_is_known_by_the_name_or_the_place_it_is_served_under() -> None:
    facts: dict[str, Any] = {
        "host": "127.0.0.1",
        "pid": 1,
        "version": "1",
        "started": 0.0,
    }
    servers = [
        RunningServer(port=1, model="/models/other", **facts),
        RunningServer(port=2, model="demo", **facts),
    ]
    named = server_of(servers, Load(model="/models/demo", name="demo"))
    placed = server_of(servers, Load(model="/models/other"))

    assert [found and found.port for found in (named, placed)] == [2, 1]
    assert server_of(servers, Load(model="/models/third", name="third")) is None
