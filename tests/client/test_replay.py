# SPDX-License-Identifier: Apache-2.0
"""A recording answers as the engine did when it was made."""

from __future__ import annotations

import math
import stat
import threading
from pathlib import Path

import pytest

from splashpy.client.client import EngineClient
from splashpy.client.replay import Recorder, ReplayClient, Timed, read_recording
from splashpy.errors import EngineDiedError, UsageError
from splashpy.protocol import (
    Cancel,
    Count,
    Cycle,
    Done,
    EngineHello,
    Event,
    Failure,
    Generate,
    Hello,
    Load,
    LoadProgress,
    Piece,
    Ping,
    Pong,
    Prefill,
    Ready,
    Shutdown,
)
from splashpy.wire import to_line

NEVER = 1e6  # seconds into a recording no test waits for


def prefill(request: str, processed: int = 10) -> Prefill:
    return Prefill(id=request, total=10, cached=4, processed=processed, elapsed_ms=5)


def cycle(request: str, i: int, text: str, committed: int = 1) -> Cycle:
    return Cycle(
        id=request,
        i=i,
        drafted=3 if i else 0,
        accepted=committed - 1,
        committed=committed,
        draft_ms=1,
        verify_ms=2,
        pieces=(Piece(text, "t", "c"),),
    )


STARTED = [
    Timed(0.0, EngineHello(proto=1, version="1", pid=1)),
    Timed(0.1, LoadProgress(phase="map")),
    Timed(0.2, Ready(model="m", context_max=100, block_size=4)),
]
ANSWERS = [
    Timed(0.3, prefill("a")),
    Timed(0.4, cycle("a", 0, "one")),
    Timed(0.5, Done(id="a", reason="stop")),
    Timed(0.6, cycle("b", 0, "two")),
    Timed(0.7, Done(id="b", reason="length")),
]


def receive_all(client: EngineClient) -> list[Event]:
    events = []
    while (event := client.receive(timeout=0)) is not None:
        events.append(event)
    return events


def test_loading_is_answered_by_what_came_before_the_first_request() -> None:
    client = ReplayClient(STARTED + ANSWERS, speed=math.inf)

    client.send(Hello())
    assert receive_all(client) == [STARTED[0].event]
    client.send(Load(model="anything"))
    assert receive_all(client) == [STARTED[1].event, STARTED[2].event]


def test_requests_are_answered_in_turn_under_the_callers_ids() -> None:
    client = ReplayClient(STARTED + ANSWERS, speed=math.inf)

    texts = []
    for name in ("first", "second", "third"):
        client.send(Generate(id=name))
        events = receive_all(client)
        assert {getattr(event, "id", None) for event in events} == {name}
        texts.append([e.pieces[0].text for e in events if isinstance(e, Cycle)])

    assert texts == [["one"], ["two"], ["one"]]


def test_a_cancelled_request_ends_with_the_counts_of_what_was_played() -> None:
    playing = [
        Timed(0.0, prefill("a")),
        Timed(0.0, cycle("a", 0, "x")),
        Timed(0.0, cycle("a", 1, "yz", committed=3)),
        Timed(NEVER, cycle("a", 2, "never")),
    ]
    client = ReplayClient(playing)
    client.send(Generate(id="r"))
    assert len(receive_all(client)) == 3

    client.send(Cancel(id="r"))

    (done,) = receive_all(client)
    assert isinstance(done, Done)
    assert (done.id, done.reason) == ("r", "cancelled")
    assert (done.usage.prompt, done.usage.cached, done.usage.completion) == (10, 4, 4)
    assert (done.spec.cycles, done.spec.tau) == (1, 3.0)


def test_cancelling_what_has_ended_says_nothing() -> None:
    client = ReplayClient(ANSWERS, speed=math.inf)
    client.send(Generate(id="r"))
    receive_all(client)

    client.send(Cancel(id="r"))

    assert receive_all(client) == []


def test_ping_is_answered_while_an_answer_is_still_to_come() -> None:
    client = ReplayClient([Timed(0.0, prefill("a")), Timed(NEVER, prefill("a"))])
    client.send(Generate(id="r"))
    receive_all(client)

    client.send(Ping(n=7))

    assert client.receive(timeout=0) == Pong(n=7)


def test_counting_is_refused_because_a_recording_has_no_tokenizer() -> None:
    client = ReplayClient(ANSWERS)
    client.send(Count(id="c", prompt="x"))

    (failure,) = receive_all(client)

    assert isinstance(failure, Failure)
    assert failure.id == "c"


def test_a_scripted_death_is_raised_and_remembered() -> None:
    death = EngineDiedError("killed by signal 9")
    client = ReplayClient([Timed(0.0, cycle("a", 0, "par")), Timed(0.0, death)])
    client.send(Generate(id="r"))
    assert client.receive(timeout=0) is not None

    with pytest.raises(EngineDiedError):
        client.receive(timeout=0)
    with pytest.raises(EngineDiedError):
        client.send(Ping())


def test_shutdown_ends_the_conversation() -> None:
    client = ReplayClient(STARTED)
    client.send(Shutdown())

    with pytest.raises(EOFError):
        client.receive(timeout=0)


def test_closing_wakes_a_reader_that_waits() -> None:
    client = ReplayClient(STARTED)
    ended = threading.Event()

    def read() -> None:
        with pytest.raises(EOFError):
            client.receive()
        ended.set()

    reader = threading.Thread(target=read)
    reader.start()
    client.close()

    assert ended.wait(60)
    reader.join()


def test_events_wait_for_their_time() -> None:
    client = ReplayClient([Timed(0.0, prefill("a", 1)), Timed(NEVER, prefill("a"))])
    client.send(Generate(id="r"))

    assert client.receive(timeout=0) is not None
    assert client.receive(timeout=0.01) is None


def test_a_recorder_writes_what_a_replay_plays_again(tmp_path: Path) -> None:
    path = tmp_path / "session.ndjson"
    ticks = iter(range(100))
    with Recorder(
        ReplayClient(STARTED + ANSWERS, speed=math.inf),
        path,
        clock=lambda: float(next(ticks)),
    ) as recorder:
        recorder.send(Hello())
        recorder.send(Load(model="m"))
        recorder.send(Ping())
        recorder.send(Generate(id="mine"))
        seen = [e for e in receive_all(recorder) if not isinstance(e, Pong)]

    recorded = read_recording(path)

    assert [timed.event for timed in recorded] == seen
    assert [timed.t for timed in recorded] == [float(i + 1) for i in range(len(seen))]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_recorder_never_overwrites_a_file(tmp_path: Path) -> None:
    path = tmp_path / "session.ndjson"
    path.write_text("mine")

    with pytest.raises(FileExistsError):
        Recorder(ReplayClient(STARTED), path)
    assert path.read_text() == "mine"


def test_a_damaged_line_is_named(tmp_path: Path) -> None:
    path = tmp_path / "broken.ndjson"
    path.write_bytes(to_line(STARTED[0].event) + b'{"ev":"ready","model":3}\n')

    with pytest.raises(UsageError, match="line 2"):
        ReplayClient(path)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="nowhere"):
        ReplayClient(tmp_path / "nowhere.ndjson")


def test_events_of_a_later_version_are_skipped(tmp_path: Path) -> None:
    path = tmp_path / "later.ndjson"
    path.write_bytes(b'{"ev":"hologram","t":1}\n\n' + to_line(ANSWERS[0].event))

    assert [timed.event for timed in read_recording(path)] == [ANSWERS[0].event]
