# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import queue
import threading

from hypothesis import given
from hypothesis import strategies as st

from splashpy.host.outbox import Outbox
from splashpy.protocol import Cycle, Done, Event, Piece, Pong
from splashpy.wire import event_from_line


def cycle(request_id: str, text: str, i: int = 1) -> Cycle:
    return Cycle(
        id=request_id,
        i=i,
        drafted=2,
        accepted=1,
        committed=2,
        draft_ms=1.0,
        verify_ms=2.0,
        pieces=(Piece(text, "t", "c"),),
        token_ids=(1, 2),
    )


def read(chunks: list[bytes]) -> list[Event]:
    lines = b"".join(chunks).splitlines()
    return [event for line in lines if (event := event_from_line(line))]


def text(events: list[Event], request_id: str) -> str:
    return "".join(
        piece.text
        for event in events
        if isinstance(event, Cycle) and event.id == request_id
        for piece in event.pieces
    )


@given(
    st.lists(st.tuples(st.sampled_from("ab"), st.text(max_size=3)), max_size=60),
    st.integers(1, 4),
)
def test_a_slow_reader_loses_no_text_and_blocks_nobody(
    parts: list[tuple[str, str]], limit: int
) -> None:
    open_gate, lines = threading.Event(), []

    def write(line: bytes) -> None:
        open_gate.wait()
        lines.append(line)

    outbox = Outbox(write, limit=limit)
    for request_id, part in parts:
        outbox.put(cycle(request_id, part))
    outbox.put(Done(id="a", reason="stop"))
    open_gate.set()
    outbox.close(10)

    events = read(lines)
    for name in "ab":
        readable = [
            p.encode("utf-8", "replace").decode() for n, p in parts if n == name
        ]
        assert text(events, name) == "".join(readable)
    cycles = [event for event in events if isinstance(event, Cycle)]
    assert sum(event.committed for event in cycles) == 2 * len(parts)
    assert isinstance(events[-1], Done)


def test_a_flood_is_merged_to_a_bounded_number_of_events() -> None:
    open_gate, lines = threading.Event(), []

    def write(line: bytes) -> None:
        open_gate.wait()
        lines.append(line)

    outbox = Outbox(write, limit=8)
    for _ in range(2_000):
        for request_id in "abcd":
            outbox.put(cycle(request_id, "x"))
    assert len(outbox._events) <= 8
    open_gate.set()
    outbox.close(10)
    events = read(lines)
    for request_id in "abcd":
        assert text(events, request_id) == "x" * 2_000


def test_a_reader_that_went_away_ends_the_writer_quietly() -> None:
    def write(line: bytes) -> None:
        raise BrokenPipeError

    outbox = Outbox(write)
    outbox.put(Pong())
    outbox.close(10)
    assert not outbox._thread.is_alive()


def test_cycles_told_together_come_with_the_next_event_that_cannot_wait() -> None:
    written: queue.Queue[bytes] = queue.Queue()
    outbox = Outbox(written.put)
    outbox.gather("a", 600.0)
    outbox.put(cycle("a", "first", i=0))
    assert text(read([written.get(timeout=10)]), "a") == "first"
    outbox.put(cycle("a", "x"))
    outbox.put(cycle("a", "y"))
    outbox.put(cycle("b", "z"))
    together = read([written.get(timeout=10)])
    assert [event.pieces[0].text for event in together] == ["x", "y", "z"]
    outbox.put(cycle("a", "end"))
    outbox.put(Done(id="a", reason="stop"))
    assert [type(event) for event in read([written.get(timeout=10)])] == [Cycle, Done]
    outbox.put(cycle("a", "of another request with that id"))
    assert written.get(timeout=10)
    outbox.close(10)
    assert written.empty()


def test_a_cycle_that_is_followed_by_nothing_is_told_in_time() -> None:
    written: queue.Queue[bytes] = queue.Queue()
    outbox = Outbox(written.put)
    outbox.gather("a", 0.02)
    for part in "abc":
        outbox.put(cycle("a", part))
        assert text(read([written.get(timeout=10)]), "a") == part
    outbox.close(10)


def test_what_waits_for_others_is_told_at_the_end() -> None:
    written: queue.Queue[bytes] = queue.Queue()
    outbox = Outbox(written.put)
    outbox.gather("a", 600.0)
    outbox.put(cycle("a", "x"))
    outbox.close(10)
    assert text(read([written.get(timeout=10)]), "a") == "x"
