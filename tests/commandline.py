# SPDX-License-Identifier: Apache-2.0
"""What a command leaves behind, and recorded answers for it to print."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import select
import struct
import subprocess
import termios
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from splashpy.client.replay import Timed, recorded_line
from splashpy.protocol import (
    Cycle,
    Done,
    DraftState,
    EngineHello,
    Event,
    FinishReason,
    LoadProgress,
    Piece,
    Prefill,
    Ready,
    Spec,
    Timing,
    Usage,
)


@dataclass(frozen=True, slots=True)
class Result:
    """What a command left behind."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """The JSON document on stdout."""
        return json.loads(self.out)


Call = Callable[..., Result]
"""Runs splashpy in this process."""

Record = Callable[..., Path]
"""Writes a recording; takes the arguments of :func:`write_recording`."""

Start = Callable[..., "subprocess.Popen[bytes]"]
"""Starts splashpy as a process of its own."""


def write_recording(
    path: Path,
    *pieces: Piece | str,
    reason: FinishReason = "stop",
    waits: Sequence[float] = (),
    instead: Iterable[Event] = (),
) -> Path:
    """Write a recording whose answer is the given pieces, one cycle each.

    Args:
        path: a new file.
        pieces: text stands for content the target wrote itself.
        reason: why the answer ended.
        waits: seconds before each event of the answer.
        instead: events in place of the answer.
    """
    whole = [piece if isinstance(piece, Piece) else text(piece) for piece in pieces]
    moment = 0.0
    timed = [Timed(moment, event) for event in beginning()]
    for number, event in enumerate(list(instead) or answer(whole, reason)):
        moment += waits[number] if number < len(waits) else 0.0
        timed.append(Timed(moment, event))
    path.write_text("".join(map(recorded_line, timed)), encoding="utf-8")
    return path


def text(content: str) -> Piece:
    """A piece of content the target wrote itself."""
    return Piece(content, "t", "c")


def beginning() -> list[Event]:
    """What an engine says until it is ready."""
    return [
        EngineHello(proto=1, version="0.1.0", pid=1),
        LoadProgress(phase="map", done=2, total=2, unit="tensors"),
        Ready(
            model="tiny",
            context_max=4096,
            block_size=8,
            draft=DraftState(state="active"),
        ),
    ]


def answer(pieces: Sequence[Piece], reason: FinishReason) -> list[Event]:
    """A request: prompt of 20 tokens, 4 of them cached, one cycle for each piece."""
    events: list[Event] = [
        Prefill(id="a", total=20, cached=4, processed=20, elapsed_ms=5.0)
    ]
    for number, piece in enumerate(pieces):
        events.append(
            Cycle(
                id="a",
                i=number,
                drafted=7 if number else 0,
                accepted=1 if number else 0,
                committed=2 if number else 1,
                draft_ms=0.0,
                verify_ms=0.0,
                pieces=(piece,),
            )
        )
    cycles = max(len(pieces) - 1, 0)
    events.append(
        Done(
            id="a",
            reason=reason,
            usage=Usage(prompt=20, cached=4, completion=1 + 2 * cycles),
            timing=Timing(ttft_ms=100.0, decode_ms=500.0, first_emission_tokens=1),
            spec=Spec(
                cycles=cycles,
                drafted=7 * cycles,
                accepted=cycles,
                tau=2.0 if cycles else 0.0,
                hist=(0, cycles, 0, 0, 0, 0, 0, 0),
                accepted_per_position=(cycles, 0, 0, 0, 0, 0, 0),
                drafted_per_position=(cycles,) * 7,
                drafter_cycles=cycles,
                saved=0.5 * cycles,
            ),
        )
    )
    return events


LIMIT = 60
"""Seconds after which a process that should have ended has failed its test."""


def finish(process: subprocess.Popen[bytes]) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of a process that ends by itself."""
    out, err = process.communicate(timeout=LIMIT)
    return process.returncode, (out or b"").decode(), (err or b"").decode()


def read_until(process: subprocess.Popen[bytes], words: bytes, *, of: str) -> bytes:
    """What a process wrote up to certain words, without waiting for its end."""
    stream = process.stdout if of == "stdout" else process.stderr
    assert stream is not None
    seen = b""
    while words not in seen:
        more = os.read(stream.fileno(), 1)
        assert more, f"{of} ended with {seen!r}"
        seen += more
    return seen


def on_terminal(
    start: Start,
    *words: str,
    typed: tuple[tuple[str, bytes], ...] = (),
    stdin: int | None = None,
    program: Sequence[str] = ("-m", "splashpy"),
    **variables: str,
) -> tuple[int, str]:
    """Run splashpy on a terminal of 30 rows and 100 columns.

    Args:
        start: the fixture that starts a process.
        words: of the command line.
        typed: pairs of what to wait for on the screen and what to type then.
        stdin: standard input; None is the terminal.
        program: what Python runs.
        variables: of the environment.

    Returns:
        The exit code and everything the terminal was sent.
    """
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 100, 0, 0))
    keyboard = theirs if stdin is None else stdin
    process = start(
        *words,
        stdin=keyboard,
        stdout=theirs,
        stderr=theirs,
        program=program,
        **variables,
    )
    os.close(theirs)
    shown = b""
    waiting = list(typed)
    try:
        while True:
            if not select.select([ours], [], [], LIMIT)[0]:
                process.kill()
                raise AssertionError(f"nothing more after {shown[-300:]!r}")
            more = os.read(ours, 65536)
            shown += more
            if waiting and waiting[0][0].encode() in shown:
                os.write(ours, waiting.pop(0)[1])
    except OSError:
        pass  # Linux reports the end of a terminal as an I/O error
    finally:
        os.close(ours)
    return process.wait(LIMIT), shown.decode()
