# SPDX-License-Identifier: Apache-2.0
"""The speed panel's numbers, and tokens coloured by their origin."""

from __future__ import annotations

from dataclasses import replace

import pytest
from chat.scripted import Chat, MakeChat, Script
from hypothesis import given
from hypothesis import strategies as st

from splashpy.chat.entries import REMEMBERED_PIECES, Reply, forget
from splashpy.chat.meters import UNKNOWN
from splashpy.chat.origin import OriginView
from splashpy.chat.session import Session
from splashpy.chat.settings import ChatSettings
from splashpy.chat.speed import Speculation, speed_lines, totals
from splashpy.chat.widgets.speed import SpeedPanel
from splashpy.client.replay import Timed
from splashpy.protocol import (
    Cycle,
    Done,
    DraftState,
    Generate,
    Load,
    Memory,
    MemoryPlan,
    Piece,
    Ready,
    Spec,
    Timing,
    Usage,
)


def session_with(**ready: object) -> Session:
    session = Session(
        Load(model="/m", name="demo"), ChatSettings(), time_of_day=lambda: "14:02"
    )
    facts: dict = {"model": "m", "context_max": 100, "block_size": 4} | ready
    session.apply(Ready(**facts), 0.0)
    return session


def cycle(request: str, i: int, *, accepted: int, drafted: int = 3) -> Cycle:
    return Cycle(
        id=request,
        i=i,
        drafted=drafted if i else 0,
        accepted=accepted,
        committed=accepted + 1,
        draft_ms=2.0,
        verify_ms=10.0,
        pieces=(Piece("x", "a", "c"),),
    )


def asked(session: Session) -> str:
    (command,) = session.submit("question", 0.0)
    assert isinstance(command, Generate)
    return command.id


def text(session: Session) -> str:
    return "\n".join(line.plain for line in speed_lines(session, 2.0))


def test_what_is_not_known_is_a_dash() -> None:
    session = Session(Load(model="/m"), ChatSettings(), time_of_day=lambda: "")

    assert f"draft        {UNKNOWN}" in text(session)
    assert f"active       {UNKNOWN}" in text(session)


def test_a_running_answer_is_counted_pass_by_pass() -> None:
    session = session_with(draft=DraftState(state="active", bits=4))
    request = asked(session)
    for i, accepted in enumerate((0, 3, 1, 1)):
        session.apply(cycle(request, i, accepted=accepted), float(i))

    shown = text(session)
    assert "draft        active, 4-bit" in shown
    assert "τ            2.67/4" in shown
    assert "drafted      9" in shown
    assert "accepted     5 (56%)" in shown
    assert "draft time   2.0 ms a pass" in shown
    assert f"decided      {UNKNOWN}" in shown
    assert "  2 " + "█" * 14 + "  67%" in shown
    assert " d1 " + "█" * 14 + " 100%" in shown
    assert " d2 █████·········  33%" in shown


def test_a_finished_answer_shows_the_engines_own_counts() -> None:
    session = session_with(
        draft=DraftState(state="off", reason="--no-draft"),
        memory=MemoryPlan(weights=10**9, kv_per_token=2000),
    )
    request = asked(session)
    spec = Spec(
        cycles=2,
        drafted=6,
        accepted=3,
        tau=2.5,
        hist=(1, 0, 0, 1),
        accepted_per_position=(1, 1, 1),
        drafted_per_position=(2, 2, 2),
        plain_cycles=0,
        drafter_cycles=1,
        lookup_cycles=3,
        saved=2.35,
        regret=1.0,
    )
    done = Done(
        id=request,
        reason="stop",
        usage=Usage(prompt=100, cached=25, completion=6),
        timing=Timing(ttft_ms=500, decode_ms=1000, first_emission_tokens=1),
        spec=spec,
    )
    session.apply(done, 1.0)
    session.apply(Memory(active=2 * 10**9, pressure="warn"), 1.0)

    shown = text(session)
    assert "--no-draft" in shown
    assert "speed        5.0 tok/s" in shown
    assert "τ            2.50/4" in shown
    assert "weights      1.0 GB" in shown
    assert "drafter      1 (25%)\nlookup       3 (75%)\nno draft     0 (0%)" in shown
    assert "lost         1.0 plain steps" in shown
    assert "pressure     warn" in shown
    sums = "\n".join(line.plain for line in totals(session))
    assert "cached       25 (25%)" in sums
    assert "tokens       6 written, 100 read" in sums
    assert "plain steps  2.4 saved, 1.0 lost" in sums


def test_the_speed_without_drafts_is_measured_or_a_dash() -> None:
    session = session_with()
    spec = Spec(cycles=9, drafted=9, accepted=9, tau=2.0)
    timing = Timing(decode_ms=1000.0, first_emission_tokens=1)
    for drafted, completion in ((9, 41), (0, 21), (9, 51)):
        request = asked(session)
        done = Done(
            id=request,
            reason="stop",
            usage=Usage(prompt=9, completion=completion),
            timing=timing,
            spec=replace(spec, drafted=drafted),
        )
        assert ("plain        \u2013 tok/s" in text(session)) == (completion < 51)
        session.apply(done, 1.0)

    assert "plain        20.0 tok/s (2.50x)" in text(session)


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), max_size=30))
def test_positions_add_up_to_the_totals(passes: list[tuple[int, int]]) -> None:
    session = session_with()
    request = asked(session)
    session.apply(cycle(request, 0, accepted=0), 0.0)
    for i, (drafted, kept) in enumerate(passes, start=1):
        session.apply(
            cycle(request, i, drafted=drafted, accepted=min(kept, drafted)), 1.0
        )
    assert session.reply is not None
    spec = Speculation.of(session.reply)

    assert sum(spec.kept.values()) == spec.accepted
    assert sum(spec.proposed.values()) == spec.drafted
    assert sum(spec.hist.values()) == spec.passes == len(passes)


kinds = st.sampled_from(["a", "t", "l"])
channels = st.sampled_from(["c", "c", "c", "r"])
pieces = st.lists(
    st.builds(Piece, st.sampled_from(["word ", "\n", "a\nb", "\x1b"]), kinds, channels),
    max_size=700,
)


@given(pieces, st.integers(1, 300))
def test_coloured_text_is_the_text_however_it_arrives(
    whole: list[Piece], step: int
) -> None:
    view = OriginView()
    for end in range(step, len(whole) + step, step):
        view.blocks(whole[:end])
    blocks = view.blocks(whole)
    shown = "\n".join(block.text for block in blocks)

    wanted = "".join(piece.text for piece in whole if piece.channel == "c")
    assert shown == wanted.replace("\x1b", "␛")
    assert len(blocks) <= len(whole) // 200 + 1


def test_only_the_latest_origins_are_remembered() -> None:
    def answer(count: int) -> Reply:
        reply = Reply("demo", "", "a", 0.0)
        reply.pieces = [Piece("x", "a", "c")] * count
        return reply

    old, new = answer(REMEMBERED_PIECES), answer(10)
    forget([old, new])

    assert (len(old.pieces), len(new.pieces)) == (0, 10)


@pytest.mark.parametrize("size", [(160, 50), (100, 30), (40, 12)])
def test_the_panel_comes_and_goes_and_the_answer_is_coloured(
    chat: MakeChat, script: Script, size: tuple[int, int]
) -> None:
    answer = [
        Timed(0.0, script.cycle(0, "**one** ")),
        Timed(0.0, script.cycle(1, "two three", tokens=3)),
        Timed(0.0, script.done(completion=4)),
    ]

    async def scenario(it: Chat) -> None:
        await it.ready()
        await it.send("question")
        await it.until(lambda: "one two three" in it.transcript)
        await it.pilot.press("f3")
        panel = it.app.screen.query_one(SpeedPanel)
        await it.until(lambda: panel.size.width > 20)
        assert "accepted" in it.text_of("#speed")
        await it.pilot.press("f3", "f4")
        await it.until(lambda: "**one** two three" in it.transcript)
        assert "accepted drafts" in it.transcript
        assert not panel.display
        await it.pilot.press("f4")
        await it.until(lambda: "**one**" not in it.transcript)
        await it.send("/stats")
        await it.until(lambda: it.app.screen.query("#page"))

    chat(script.started() + answer, size=size).run(scenario)
