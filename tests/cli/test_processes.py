# SPDX-License-Identifier: Apache-2.0
"""``splashpy`` as a process: streams, signals, pipes and terminals."""

from __future__ import annotations

import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from commandline import LIMIT, Record, Start, finish, on_terminal, read_until

from splashpy.protocol import Piece

pytestmark = pytest.mark.e2e

NEVER = 1e6
"""Seconds until an event that no test waits for."""

RUN = ("run", "-p", "hi", "--replay")


def test_the_answer_goes_to_stdout_and_the_rest_to_stderr(
    start: Start, record: Record
) -> None:
    code, out, err = finish(start(*RUN, str(record("Red", ", blue."))))

    assert (code, out) == (0, "Red, blue.\n")
    assert err == "loading 2 of 2\n"


def test_ctrl_c_prints_what_exists_and_ends_with_130(
    start: Start, record: Record
) -> None:
    process = start(*RUN, str(record("Red", " never", waits=(0, 0, NEVER))), "--stats")
    read_until(process, b"Red", of="stdout")
    process.send_signal(signal.SIGINT)
    code, out, err = finish(process)

    assert (code, out) == (130, "\n")
    assert "stopping… press Ctrl-C again to stop now" in err
    assert err.endswith("cancelled\n")


def test_ctrl_c_while_the_model_loads_ends_at_once(
    start: Start, record: Record
) -> None:
    recording = record("Red")
    lines = recording.read_text().replace('"t":0.0}', f'"t":{NEVER}}}').splitlines()
    first = lines[0].replace(f'"t":{NEVER}', '"t":0.0')
    second = lines[1].replace(f'"t":{NEVER}', '"t":0.0')
    recording.write_text("\n".join([first, second, *lines[2:]]))
    process = start(*RUN, str(recording))
    read_until(process, b"loading", of="stderr")
    process.send_signal(signal.SIGINT)

    assert finish(process)[0] == 130


def test_sigterm_counts_as_ctrl_c_and_ends_with_143(
    start: Start, record: Record
) -> None:
    process = start(*RUN, str(record("Red", " never", waits=(0, 0, NEVER))))
    read_until(process, b"Red", of="stdout")
    process.send_signal(signal.SIGTERM)

    assert finish(process)[0] == 143


STUBBORN = """
import sys
from pathlib import Path
from splashpy.cli import main, writing
from splashpy.client.replay import ReplayClient
from splashpy.protocol import Cancel

class Stubborn(ReplayClient):
    def send(self, command):
        if not isinstance(command, Cancel):
            super().send(command)

writing._connect = lambda invocation: Stubborn(Path(sys.argv[1]))
sys.exit(main(["run", "-p", "hi", "--replay", *sys.argv[1:]]))
"""
"""An engine that does not stop when it is asked to."""


def test_a_second_ctrl_c_ends_at_once_and_leaves_no_partial_file(
    record: Record, tmp_path: Path
) -> None:
    thought = Piece("hmm", "t", "r")
    recording = record(thought, "never", waits=(0, 0, NEVER))
    folder = tmp_path / "out"
    folder.mkdir()
    words = [str(recording), "-o", str(folder / "a.txt"), "--reasoning", "show"]
    with subprocess.Popen(
        [sys.executable, "-c", STUBBORN, *words],
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    ) as process:
        read_until(process, b"hmm", of="stderr")
        process.send_signal(signal.SIGINT)
        read_until(process, b"to stop now", of="stderr")
        process.send_signal(signal.SIGINT)
        code = process.wait(LIMIT)

    assert code == 130
    assert not list(folder.iterdir())


def test_a_reader_that_leaves_ends_it_quietly_with_141(
    start: Start, record: Record
) -> None:
    # More than a pipe holds, so that the writer meets the closed end for certain.
    process = start(*RUN, str(record("Red\n", *["x" * 4096] * 100)), "-q")
    assert read_until(process, b"\n", of="stdout") == b"Red\n"
    assert process.stdout is not None
    process.stdout.close()
    process.stdout = None

    assert finish(process) == (141, "", "")


def test_a_full_disk_under_stdout_is_told_with_its_code(
    start: Start, record: Record
) -> None:
    full = Path("/dev/full")
    if not full.exists():
        pytest.skip("needs /dev/full")
    with full.open("wb") as disk:
        code, _, err = finish(
            start(*RUN, str(record("Red.")), "-q", stdout=disk.fileno())
        )

    assert code == 4
    assert "[E-DISK]" in err
    assert "Traceback" not in err


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_streams_are_no_reason_to_fail(record: Record, closed: str) -> None:
    words = [sys.executable, "-m", "splashpy", *RUN, str(record("Red."))]
    done = subprocess.run(
        ["sh", "-c", f"exec {shlex.join(words)} {closed}"],
        capture_output=True,
        check=False,
        timeout=LIMIT,
    )
    assert done.returncode == 0
    assert b"Traceback" not in done.stderr


def test_piped_text_is_the_prompt(start: Start, record: Record) -> None:
    process = start("run", "--replay", str(record("Red.")), stdin=subprocess.PIPE)
    out, _ = process.communicate(b"Name a colour.\n", timeout=LIMIT)

    assert (process.returncode, out) == (0, b"Red.\n")


def test_input_that_is_not_text_is_refused(start: Start, record: Record) -> None:
    process = start("run", "--replay", str(record("Red.")), stdin=subprocess.PIPE)
    _, err = process.communicate(b"\xff\xfe", timeout=LIMIT)

    assert process.returncode == 3
    assert b"standard input is not UTF-8 text  [E-FILE]" in err


def test_on_a_terminal_progress_is_cleared_and_hostile_text_disarmed(
    start: Start, record: Record
) -> None:
    recording = str(record("Red \x1b]0;title\x07."))
    code, shown = on_terminal(start, *RUN, recording, TERM="xterm")

    assert code == 0
    assert "\x1b]" not in shown
    assert shown.endswith("\r\x1b[KRed ␛]0;title␇.\r\n")


def test_a_dumb_terminal_gets_no_control_sequence_at_all(
    start: Start, record: Record
) -> None:
    recording = str(record("Red."))
    code, shown = on_terminal(start, *RUN, recording, "--draft-colors", TERM="dumb")

    assert code == 0
    assert "\x1b" not in shown


def test_no_color_leaves_no_colour_even_in_errors(start: Start) -> None:
    plain = on_terminal(start, "run", "demo", "hi", "--temp", "9", TERM="xterm")[1]
    silent = on_terminal(
        start, "run", "demo", "hi", "--temp", "9", TERM="xterm", NO_COLOR="1"
    )[1]

    assert plain.startswith("\x1b[1;31merror:\x1b[0m")
    assert "\x1b" not in silent


def test_a_home_that_cannot_be_written_does_not_stop_an_answer(
    start: Start, record: Record, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    home = str(tmp_path / "file" / "below")
    code, out, _ = finish(start(*RUN, str(record("Red.")), SPLASHPY_HOME=home))

    assert (code, out) == (0, "Red.\n")


@pytest.mark.parametrize(
    "variables", [{"LC_ALL": "C"}, {"PYTHONIOENCODING": "latin-1"}]
)
def test_any_locale_prints_the_answer_in_utf8(
    start: Start, record: Record, variables: dict[str, str]
) -> None:
    code, out, err = finish(start(*RUN, str(record("día τ")), **variables))

    assert (code, out) == (0, "día τ\n")
    assert "Traceback" not in err
