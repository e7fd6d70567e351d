# SPDX-License-Identifier: Apache-2.0
"""What a conversation becomes when things are said, stopped and lost."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from splashpy.chat.entries import Entry, Notice, Reply, UserMessage
from splashpy.chat.session import Session
from splashpy.chat.settings import ChatSettings
from splashpy.errors import EngineDiedError, EngineStuckError
from splashpy.protocol import (
    Cancel,
    Cycle,
    Done,
    Failure,
    Generate,
    Load,
    LoadProgress,
    Memory,
    Piece,
    Pong,
    Prefill,
    Queued,
    Ready,
    Sampling,
    ToolDelta,
    Usage,
)

READY = Ready(model="m", context_max=100, block_size=8)


def new_session(**settings: Any) -> Session:
    return Session(
        Load(model="/models/demo", name="demo"),
        ChatSettings(**settings),
        time_of_day=lambda: "14:02",
    )


@pytest.fixture
def session() -> Session:
    session = new_session()
    session.apply(READY, 0.0)
    return session


def ask(session: Session, text: str) -> str:
    (command,) = session.submit(text, 1.0)
    assert isinstance(command, Generate)
    return command.id


def write(session: Session, request: str, text: str, channel: Any = "c") -> None:
    session.apply(
        Cycle(
            id=request,
            i=0,
            drafted=0,
            accepted=0,
            committed=1,
            draft_ms=0,
            verify_ms=0,
            pieces=(Piece(text, "t", channel),),
        ),
        2.0,
    )


def finish(session: Session, request: str, reason: Any = "stop") -> list:
    usage = Usage(prompt=50, completion=7)
    return session.apply(Done(id=request, reason=reason, usage=usage), 3.0)


def replies_of(entries: Sequence[Entry]) -> list[Reply]:
    return [entry for entry in entries if isinstance(entry, Reply)]


def exchange(session: Session, text: str, answer: str) -> None:
    request = ask(session, text)
    if answer:
        write(session, request, answer)
    finish(session, request, "stop" if answer else "cancelled")


def test_a_request_carries_the_conversation_and_the_settings() -> None:
    session = new_session(
        system="Be brief.", max_tokens=5, sampling=Sampling(temperature=0.0)
    )
    session.apply(READY, 0.0)
    exchange(session, "one", "1")

    (command,) = session.submit("two", 4.0)

    assert isinstance(command, Generate)
    assert command.messages == (
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "one"},
        {"role": "assistant", "content": "1"},
        {"role": "user", "content": "two"},
    )
    assert command.max_tokens == 5
    assert command.sampling.temperature == 0.0


def test_a_message_before_the_model_is_ready_waits_and_is_sent() -> None:
    session = new_session()
    assert session.submit("early", 0.0) == []
    assert not session.accepts
    with pytest.raises(ValueError, match="already waiting"):
        session.submit("second", 0.0)

    (command,) = session.apply(READY, 1.0)

    assert isinstance(command, Generate)
    assert session.queued is None
    assert session.accepts


def test_a_waiting_message_follows_a_stopped_answer(session: Session) -> None:
    request = ask(session, "one")
    session.submit("two", 1.5)
    assert session.stop(2.0) == [Cancel(id=request)]
    assert session.stop(2.1) == []

    (command,) = finish(session, request, "cancelled")

    assert isinstance(command, Generate)
    assert command.id != request


def test_an_answer_passes_through_its_states(session: Session) -> None:
    request = ask(session, "one")
    reply = session.reply
    assert reply is not None
    assert reply.state == "waiting"
    session.apply(Queued(id=request, position=2), 1.0)
    assert reply.position == 2
    session.apply(
        Prefill(id=request, total=9, cached=0, processed=3, elapsed_ms=1), 1.0
    )
    assert reply.state == "reading"
    write(session, request, "text")
    assert reply.state == "writing"
    before = reply.revision
    finish(session, request)
    assert reply.state == "complete"
    assert reply.revision > before
    assert session.idle
    assert session.context_used == 57


def test_channels_are_kept_apart(session: Session) -> None:
    request = ask(session, "one")
    reply = session.reply
    assert reply is not None
    write(session, request, "hm ", "r")
    session.apply(dataclasses.replace(_tool(request), name="search"), 2.0)
    write(session, request, "yes", "c")

    assert (reply.reasoning, reply.text) == ("hm ", "yes")
    assert reply.tool_text == '\nsearch {"q":'


def _tool(request: str) -> ToolDelta:
    return ToolDelta(id=request, index=0, args_delta='{"q":')


def test_reasoning_is_not_part_of_the_history(session: Session) -> None:
    request = ask(session, "one")
    write(session, request, "hm", "r")
    write(session, request, "yes")
    finish(session, request)

    assert session.history()[-1] == {"role": "assistant", "content": "yes"}


def test_messages_whose_answer_never_began_become_one(session: Session) -> None:
    exchange(session, "one", "")
    exchange(session, "two", "")
    ask(session, "three")

    assert session.history() == ({"role": "user", "content": "one\n\ntwo\n\nthree"},)


def test_a_failed_exchange_leaves_the_history_and_returns_its_text(
    session: Session,
) -> None:
    exchange(session, "one", "1")
    request = ask(session, "two")
    session.apply(Failure(id=request, code="E-CONTEXT", message="too long"), 2.0)

    assert [message["content"] for message in session.history()] == ["one", "1"]
    assert session.take_returned() == "two"
    assert session.take_returned() is None
    assert session.idle


def test_retry_replaces_the_last_answer_in_the_history(session: Session) -> None:
    exchange(session, "one", "first")
    (command,) = session.retry(4.0)
    assert isinstance(command, Generate)
    assert command.messages == ({"role": "user", "content": "one"},)
    write(session, command.id, "second")
    finish(session, command.id)

    assert [message["content"] for message in session.history()] == ["one", "second"]
    assert [reply.text for reply in replies_of(session.tree.messages)] == [
        "first",
        "second",
    ]
    (shown,) = replies_of(session.entries)
    assert (shown.text, shown.place) == ("second", (2, 2))


def test_a_failed_exchange_can_be_retried(session: Session) -> None:
    request = ask(session, "one")
    session.apply(Failure(id=request, code="E-X", message="no"), 2.0)

    (command,) = session.retry(3.0)

    assert isinstance(command, Generate)
    assert command.messages == ({"role": "user", "content": "one"},)


def test_an_edited_message_leaves_the_old_branch_to_be_read(session: Session) -> None:
    exchange(session, "one", "1")
    exchange(session, "two", "2")
    first = session.tree.messages[0]
    assert isinstance(first, UserMessage)

    (command,) = session.edit(first, "uno", 5.0)
    assert isinstance(command, Generate)
    assert command.messages == ({"role": "user", "content": "uno"},)
    finish(session, command.id)

    edited = session.entries[0]
    assert isinstance(edited, UserMessage)
    assert edited.place == (2, 2)
    assert session.switch(edited, -1)
    assert [message["content"] for message in session.history()] == [
        "one",
        "1",
        "two",
        "2",
    ]
    assert not session.switch(first, -1)


def test_a_branch_goes_on_from_an_earlier_answer(session: Session) -> None:
    exchange(session, "one", "1")
    exchange(session, "two", "2")
    first = replies_of(session.entries)[0]

    assert session.branch(first)
    assert session.context_used == 57
    exchange(session, "three", "3")

    assert [message["content"] for message in session.history()] == [
        "one",
        "1",
        "three",
        "3",
    ]
    assert len(session.tree.messages) == 6


def test_nothing_is_switched_while_an_answer_runs(session: Session) -> None:
    exchange(session, "one", "1")
    session.retry(4.0)
    (running,) = replies_of(session.entries)

    assert not session.switch(running, -1)
    assert not session.branch(running)
    assert session.entries[-1] is running


def test_a_failed_answer_can_be_left_for_its_sibling(session: Session) -> None:
    exchange(session, "one", "1")
    (command,) = session.retry(4.0)
    assert isinstance(command, Generate)
    session.apply(Failure(id=command.id, code="E-X", message="no"), 5.0)
    assert session.history() == ()

    assert session.switch(session.entries[-1], -1)

    assert [message["content"] for message in session.history()] == ["one", "1"]


def test_there_is_nothing_to_retry_at_first_or_meanwhile(session: Session) -> None:
    assert not session.can_retry
    ask(session, "one")
    assert session.retry(2.0) == []


def test_a_message_that_waits_is_not_lost_with_the_conversation(
    session: Session,
) -> None:
    ask(session, "one")
    session.submit("two", 1.5)

    session.new_conversation(2.0)

    assert session.queued is None
    assert session.take_returned() == "two"


def test_events_of_a_left_conversation_change_nothing(session: Session) -> None:
    request = ask(session, "one")
    assert session.new_conversation(2.0) == [Cancel(id=request)]
    write(session, request, "late")
    finish(session, request, "cancelled")

    assert session.entries == []
    assert session.idle


def test_a_dead_engine_leaves_a_partial_answer(session: Session) -> None:
    request = ask(session, "one")
    write(session, request, "half")
    session.lost(EngineDiedError("killed"))

    reply, notice = session.entries[-2:]
    assert isinstance(reply, Reply)
    assert isinstance(notice, Notice)
    assert (reply.state, reply.text) == ("partial", "half")
    assert session.engine.phase == "dead"
    assert session.history()[-1] == {"role": "assistant", "content": "half"}
    assert session.take_returned() is None

    session.restart()
    session.apply(READY, 9.0)
    assert notice.resolved
    assert session.idle


def test_a_message_that_waits_survives_the_engine(session: Session) -> None:
    ask(session, "one")
    session.submit("two", 1.0)
    session.lost(EngineDiedError("killed"))
    session.restart()

    (command,) = session.apply(READY, 9.0)

    assert isinstance(command, Generate)
    assert command.messages == ({"role": "user", "content": "two"},)


def test_a_stuck_engine_that_speaks_again_goes_on(session: Session) -> None:
    request = ask(session, "one")
    write(session, request, "half")
    session.lost(EngineStuckError("silent"))
    assert session.engine.phase == "stuck"
    assert session.reply is not None

    session.apply(Pong(), 20.0)

    assert session.engine.phase == "ready"
    assert session.open_notices == []
    write(session, request, " done")
    assert session.reply.text == "half done"


def test_restarting_a_stuck_engine_keeps_what_was_written(session: Session) -> None:
    request = ask(session, "one")
    write(session, request, "half")
    session.lost(EngineStuckError("silent"))
    session.restart()

    assert session.reply is None
    assert session.history()[-1]["content"] == "half"


def test_a_failure_while_loading_is_the_engines() -> None:
    session = new_session()
    session.apply(LoadProgress(phase="map"), 0.0)
    session.apply(Failure(code="E-HASH", message="damaged"), 1.0)

    assert session.engine.phase == "failed"
    assert [notice.problem.code for notice in session.open_notices] == ["E-HASH"]


def test_a_harmless_failure_is_noted_and_work_goes_on(session: Session) -> None:
    session.apply(Failure(code="E-X", message="something"), 1.0)

    assert session.idle
    assert isinstance(session.entries[-1], Notice)
    assert session.open_notices == []


def test_a_fatal_failure_ends_the_running_answer(session: Session) -> None:
    request = ask(session, "one")
    write(session, request, "half")
    session.apply(Failure(code="E-INTERNAL", message="broken", fatal=True), 2.0)

    assert session.reply is None
    assert session.engine.phase == "failed"


def test_memory_pressure_is_remembered(session: Session) -> None:
    session.apply(Memory(pressure="critical"), 1.0)

    assert session.engine.pressure == "critical"


def submit_if_accepted(session: Session, request: str) -> None:
    if session.accepts:
        session.submit("message", 1.0)


ACTIONS: dict[str, Callable[[Session, str], object]] = {
    "submit": submit_if_accepted,
    "stop": lambda session, request: session.stop(1.0),
    "retry": lambda session, request: session.retry(1.0),
    "branch": lambda session, request: [
        session.branch(reply) for reply in replies_of(session.entries)[:1]
    ],
    "edit": lambda session, request: [
        session.edit(message, "edited", 1.0)
        for message in session.tree.messages[:1]
        if isinstance(message, UserMessage)
    ],
    "back": lambda session, request: [
        session.switch(message, -1) for message in session.tree.path()[:2]
    ],
    "new": lambda session, request: session.new_conversation(1.0),
    "drop": lambda session, request: session.drop_queued(),
    "write": lambda session, request: write(session, request, "text "),
    "think": lambda session, request: write(session, request, "hm ", "r"),
    "done": finish,
    "fail": lambda session, request: session.apply(
        Failure(id=request, code="E-X", message="no"), 1.0
    ),
    "ready": lambda session, request: session.apply(READY, 1.0),
    "pong": lambda session, request: session.apply(Pong(), 1.0),
    "die": lambda session, request: session.lost(EngineDiedError("killed")),
    "stuck": lambda session, request: session.lost(EngineStuckError("silent")),
    "restart": lambda session, request: session.restart(),
}


@given(st.lists(st.sampled_from(sorted(ACTIONS)), max_size=40))
def test_no_order_of_events_breaks_the_conversation(actions: list[str]) -> None:
    session = new_session()
    for action in actions:
        reply = session.reply
        ACTIONS[action](session, reply.request_id if reply is not None else "gone")
        assert_sound(session)


def assert_sound(session: Session) -> None:
    path = session.tree.path()
    assert [e for e in session.entries if not isinstance(e, Notice)] == path
    roles = [message["role"] for message in session.history()]
    assert all(first != second for first, second in pairwise(roles))
    assert not roles or roles[0] == "user"
    running = [
        entry
        for entry in session.entries
        if isinstance(entry, Reply) and entry.state in ("waiting", "reading", "writing")
    ]
    assert running == ([session.reply] if session.reply is not None else [])
    if session.reply is not None:
        assert session.entries.count(session.reply) == 1
        before = session.entries[: session.entries.index(session.reply)]
        assert any(isinstance(entry, UserMessage) for entry in before)
