# SPDX-License-Identifier: Apache-2.0
"""A context that fills up: counted, shown, and never cut in silence."""

from __future__ import annotations

import threading

import pytest
from chat.scripted import Chat, MakeChat, Script

from splashpy.chat.asking import SUMMARIZE
from splashpy.chat.orders.context import context_lines
from splashpy.chat.screens.picker import PickerScreen
from splashpy.chat.session import Session
from splashpy.chat.settings import ChatSettings
from splashpy.chat.widgets.header import tokens_used
from splashpy.client.replay import ReplayClient, Timed
from splashpy.errors import EngineDiedError
from splashpy.protocol import (
    Command,
    Count,
    Counted,
    Cycle,
    Done,
    Failure,
    Generate,
    Load,
    Piece,
    Prefill,
    Ready,
    Usage,
)


@pytest.fixture
def session() -> Session:
    session = Session(
        Load(model="/m", name="demo"),
        ChatSettings(system="Be brief."),
        time_of_day=lambda: "14:02",
    )
    session.apply(Ready(model="m", context_max=1000, block_size=4), 0.0)
    return session


def exchange(session: Session, text: str, answer: str, *, prompt: int = 50) -> None:
    (command,) = session.submit(text, 0.0)
    finish(session, command, answer, prompt=prompt)


def finish(
    session: Session, command: Command, answer: str, *, prompt: int = 50
) -> None:
    assert isinstance(command, Generate)
    piece = Piece(answer, "t", "c")
    cycle = Cycle(
        id=command.id,
        i=0,
        drafted=0,
        accepted=0,
        committed=1,
        draft_ms=0,
        verify_ms=0,
        pieces=(piece,),
    )
    session.apply(cycle, 1.0)
    usage = Usage(prompt=prompt, completion=10)
    session.apply(Done(id=command.id, reason="stop", usage=usage), 2.0)


def contents(session: Session) -> list[str]:
    return [message["content"] for message in session.history()]


def test_the_editor_is_counted_with_the_conversation(session: Session) -> None:
    exchange(session, "one", "1")
    (command,) = session.count("two")
    assert isinstance(command, Count)
    assert [m["content"] for m in command.messages] == ["Be brief.", "one", "1", "two"]

    session.apply(Counted(id="another", tokens=1), 3.0)
    assert session.counted is None
    session.apply(Counted(id=command.id, tokens=77), 3.0)
    assert session.counted == 77
    assert session.count("") == []
    assert session.counted is None


def test_what_is_left_out_stays_to_be_read_and_is_not_sent(session: Session) -> None:
    exchange(session, "one", "1")
    exchange(session, "two", "2")

    session.leave_out(session.turns[0])

    assert contents(session) == ["Be brief.", "two", "2"]
    assert len(session.entries) == 4
    assert len(session.turns) == 1


def test_a_summary_takes_the_place_of_what_it_sums_up(session: Session) -> None:
    exchange(session, "one", "1")
    exchange(session, "two", "2")

    (command,) = session.compact(1, 5.0)
    assert isinstance(command, Generate)
    sent = [message["content"] for message in command.messages]
    assert sent == ["Be brief.", "one", "1", SUMMARIZE]
    assert contents(session)[1] == "one"
    finish(session, command, "they counted")

    assert contents(session) == ["Be brief.", "two", "2", SUMMARIZE, "they counted"]


def test_the_gauge_says_what_the_engine_counted_and_nothing_else() -> None:
    session = Session(
        Load(model="/m", name="demo"), ChatSettings(), time_of_day=lambda: "14:02"
    )
    session.apply(Ready(model="m", context_max=1000, block_size=4), 0.0)
    assert tokens_used(session) == 0
    (command,) = session.submit("question", 0.0)
    assert isinstance(command, Generate)
    assert tokens_used(session) is None
    read = Prefill(id=command.id, total=30, cached=0, processed=9, elapsed_ms=1.0)
    session.apply(read, 1.0)
    assert tokens_used(session) == 30
    session.lost(EngineDiedError("gone"))
    assert tokens_used(session) is None


def test_a_summary_that_failed_leaves_everything_as_it_was(session: Session) -> None:
    exchange(session, "one", "1")
    (command,) = session.compact(1, 5.0)
    assert isinstance(command, Generate)
    session.apply(Failure(id=command.id, code="E-X", message="no"), 6.0)

    assert contents(session) == ["Be brief.", "one", "1"]
    assert session.take_returned() is None
    assert session.compact(0, 7.0) == []


def test_the_page_names_everything_that_is_sent(session: Session) -> None:
    exchange(session, "o" * 90, "1" * 91, prompt=90)
    text = "\n".join(line.plain for line in context_lines(session))

    assert "~5  system prompt" in text
    assert "~47  You: ooo" in text
    assert "100  of 1000 at the last answer" in text


class CountingEngine(ReplayClient):
    """A recording that can count: a token for each character of the messages."""

    def send(self, command: Command) -> None:
        if isinstance(command, Count):
            tokens = sum(len(m["content"]) for m in command.messages)
            self._schedule([Timed(0.0, Counted(id=command.id, tokens=tokens))])
            with self._changed:
                self._changed.notify_all()
        else:
            super().send(command)


def test_the_gauge_follows_what_is_typed(chat: MakeChat, script: Script) -> None:
    async def scenario(it: Chat) -> None:
        await it.ready()
        await it.pilot.press(*"x" * 20)
        await it.until(lambda: "20 / 1K" in it.text_of("HeaderBar"))
        await it.pilot.press("ctrl+c")
        await it.until(lambda: "0 / 1K" in it.text_of("HeaderBar"))

    chat(lambda: CountingEngine(script.started())).run(scenario)


def test_what_was_typed_before_the_model_was_there_is_counted_then(
    chat: MakeChat, script: Script
) -> None:
    def connect() -> CountingEngine:
        typed.wait(60)
        return CountingEngine(script.started())

    async def scenario(it: Chat) -> None:
        it.prompt.insert("x" * 20)
        await it.until(lambda: it.app.screen.writing._timer is None)
        typed.set()
        await it.until(lambda: "20 / 1K" in it.text_of("HeaderBar"))

    typed = threading.Event()
    chat(connect).run(scenario)


@pytest.mark.parametrize(
    ("choice", "left"), [("leave", True), ("cancel", False), ("sum", True)]
)
def test_a_full_context_lets_the_person_decide(
    chat: MakeChat, script: Script, choice: str, left: bool
) -> None:
    full = Failure(
        id="b", code="E-CONTEXT", message="1,200 tokens", why="the context holds 1,024"
    )
    recording = [
        *script.started(),
        *script.answer("first answer"),
        Timed(0.0, full),
        *script.answer("a summary", request="c"),
    ]

    async def scenario(it: Chat) -> None:
        await it.ready()
        await it.send("one")
        await it.until(lambda: "first answer" in it.transcript and it.session.idle)
        await it.send("far too long")
        await it.until(lambda: isinstance(it.app.screen, PickerScreen))
        await it.pilot.press(*("change" if choice == "cancel" else choice), "enter")
        await it.until(lambda: not isinstance(it.app.screen, PickerScreen))
        await it.until(lambda: it.session.idle)
        await it.until(lambda: ("not sent any more" in it.transcript) == left)
        assert it.prompt.text == "far too long"
        assert ("a summary" in it.transcript) == (choice == "sum")

    chat(recording).run(scenario)


def test_context_and_compact_are_commands(chat: MakeChat, script: Script) -> None:
    recording = (
        script.started()
        + script.answer("first answer")
        + script.answer("a summary", request="b")
    )

    async def scenario(it: Chat) -> None:
        await it.ready()
        await it.send("/compact")
        await it.until(lambda: it.app._notifications)
        await it.pilot.press("ctrl+c")
        await it.send("one")
        await it.until(lambda: "first answer" in it.transcript and it.session.idle)
        await it.send("/compact")
        await it.until(lambda: "not sent any more" in it.transcript)
        await it.send("/context")
        await it.until(lambda: it.app.screen.query("#page"))

    chat(recording).run(scenario)
