# SPDX-License-Identifier: Apache-2.0
"""What the line above the editor says, and what it leaves out on a narrow terminal."""

from __future__ import annotations

from typing import Any

import pytest
from textual.content import Content

from splashpy.chat.session import Session
from splashpy.chat.settings import ChatSettings
from splashpy.chat.widgets.status import Status, bar, fitted, status
from splashpy.errors import EngineDiedError
from splashpy.protocol import (
    Cycle,
    DraftState,
    Load,
    LoadProgress,
    Memory,
    Piece,
    Prefill,
    Queued,
    Ready,
)

NOW = 100.0


@pytest.fixture
def session() -> Session:
    load = Load(model="/models/demo", name="demo")
    return Session(load, ChatSettings(), time_of_day=lambda: "14:02")


def ready(session: Session, **changes: Any) -> None:
    values: dict[str, Any] = {"model": "demo", "context_max": 100, "block_size": 8}
    values["draft"] = DraftState(state="active")
    session.apply(Ready(**(values | changes)), 0.0)


def ask(session: Session) -> str:
    session.submit("question", NOW - 10)
    assert session.reply is not None
    return session.reply.request_id


def line(session: Session, width: int = 100) -> str:
    return fitted(status(session, NOW, width=width), width).plain.rstrip()


def test_loading_shows_bytes_and_rate(session: Session) -> None:
    session.apply(
        LoadProgress(
            phase="map",
            done=10_100_000_000,
            total=17_400_000_000,
            unit="bytes",
            rate=2.9e9,
        ),
        0.0,
    )

    assert line(session) == (
        "◐ loading weights  ▐▒▒▒▒▒▒▒▒▒▒▒░░░░░░░░░▌  10.1 GB / 17.4 GB  2.9 GB/s"
    )


def test_loading_of_unknown_size_shows_what_is_done(session: Session) -> None:
    session.apply(LoadProgress(phase="download", done=1_000, unit="bytes"), 0.0)

    assert line(session) == "◐ downloading  1.0 kB"


def test_reading_shows_cached_done_and_left(session: Session) -> None:
    ready(session)
    session.apply(
        Prefill(
            id=ask(session),
            total=32_014,
            cached=20_480,
            processed=24_576,
            elapsed_ms=11e3,
        ),
        NOW,
    )

    shown = line(session, 110)

    assert "▐▓▓▓▓▓▓▓▓▓▓▓▓▒▒▒░░░░░▌  24,576 / 32,014  20,480 cached" in shown
    assert "372 tok/s  ~20 s" in shown
    assert shown.endswith("esc stop")


def test_writing_shows_speed_acceptance_and_each_pass(session: Session) -> None:
    ready(session)
    request = ask(session)
    for i, committed in enumerate([1, 8, 4, 1]):
        session.apply(
            Cycle(
                id=request,
                i=i,
                drafted=7,
                accepted=committed - 1,
                committed=committed,
                draft_ms=0,
                verify_ms=0,
                pieces=(Piece("x", "t", "c"),),
            ),
            NOW - 2 + i / 2,
        )

    shown = line(session)

    assert shown.startswith("● 6.5 tok/s  τ 4.33/8  █▄▁  14 tokens  10 s")
    assert shown.endswith("esc stop")


def test_without_bars_the_tokens_of_each_pass_are_digits(session: Session) -> None:
    session.settings = ChatSettings(encoding="ascii")
    ready(session)
    request = ask(session)
    for i, tokens in enumerate([1, 8, 1, 3]):
        session.apply(
            Cycle(
                id=request,
                i=i,
                drafted=7,
                accepted=tokens - 1,
                committed=tokens,
                draft_ms=1.0,
                verify_ms=9.0,
                pieces=(Piece("x", "t", "c"),),
            ),
            NOW - 1,
        )
    assert "τ 4.00/8  813  " in line(session)


def test_nothing_turns_where_motion_is_not_wanted(session: Session) -> None:
    session.settings = ChatSettings(motion=False)
    shown = {status(session, NOW + part, width=80).parts[0].plain for part in (0, 0.3)}
    assert shown == {"· starting the engine"}


def test_without_a_draft_there_is_no_acceptance_to_show(session: Session) -> None:
    ready(session, block_size=1, draft=DraftState(state="off", reason="--no-draft"))
    assert line(session) == "● ready  no draft: --no-draft"

    request = ask(session)
    session.apply(
        Cycle(
            id=request,
            i=0,
            drafted=0,
            accepted=0,
            committed=1,
            draft_ms=0,
            verify_ms=0,
            pieces=(),
        ),
        NOW,
    )

    assert "τ" not in line(session)


def test_waiting_says_how_many_are_before(session: Session) -> None:
    ready(session)
    session.apply(Queued(id=ask(session), position=2), NOW)

    assert line(session).startswith("◐ waiting, 2 before it")


def test_a_stop_that_takes_long_offers_a_restart(session: Session) -> None:
    ready(session)
    ask(session)
    session.stop(NOW - 0.1)
    assert line(session) == "◌ stopping…"

    assert session.reply is not None
    session.reply.stopping_since = NOW - 3

    assert line(session).endswith("ctrl+r restart the engine")


def test_a_dead_engine_names_the_way_back(session: Session) -> None:
    session.lost(EngineDiedError("killed"))

    assert line(session).startswith("✗ the engine stopped")
    assert line(session).endswith("ctrl+r start again")


def test_short_memory_is_said(session: Session) -> None:
    ready(session)
    session.apply(Memory(pressure="critical"), NOW)

    assert line(session) == "● ready  memory is short"


def test_parts_give_way_from_the_last_and_the_hint_stays() -> None:
    parts = (Content("first"), Content("second"), Content("third"))

    assert fitted(Status(parts, "esc"), 30).plain == "first  second  third       esc"
    assert fitted(Status(parts, "esc"), 20).plain == "first  second    esc"
    assert fitted(Status(parts, "esc"), 12).plain == "first    esc"


@pytest.mark.parametrize(
    ("done", "total", "first"), [(0, 0, 0), (5, 0, 5), (300, 100, 200), (1, 3, 2)]
)
def test_a_bar_is_always_as_wide(done: int, total: int, first: int) -> None:
    assert bar(done, total, first=first, width=100).cell_length == 22
    assert bar(done, total, first=first, width=40).cell_length == 10
