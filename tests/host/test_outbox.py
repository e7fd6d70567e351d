# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import threading

from hypothesis import given
from hypothesis import strategies as st

from splashpy.host.outbox import Outbox
from splashpy.protocol import Cycle, Done, Event, Piece, Pong
from splashpy.wire import event_from_line


def cycle(request_id: str, text: str) -> Cycle:
    return Cycle(
        id=request_id,
        i=1,
        drafted=2,
        accepted=1,
        committed=2,
        draft_ms=1.0,
        verify_ms=2.0,
        pieces=(Piece(text, "t", "c"),),
        token_ids=(1, 2),
    )


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

    events = [event for line in lines if (event := event_from_line(line))]
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
    events = [event for line in lines if (event := event_from_line(line))]
    for request_id in "abcd":
        assert text(events, request_id) == "x" * 2_000


def test_a_reader_that_went_away_ends_the_writer_quietly() -> None:
    def write(line: bytes) -> None:
        raise BrokenPipeError

    outbox = Outbox(write)
    outbox.put(Pong())
    outbox.close(10)
    assert not outbox._thread.is_alive()
