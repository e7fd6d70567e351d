# SPDX-License-Identifier: Apache-2.0
"""What a conversation becomes when an engine answers, fails or is lost."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from itertools import pairwise

from chat.spoken import READY, ask, exchange, finish, new_session, replies_of, write
from hypothesis import given
from hypothesis import strategies as st

from splashpy.chat.entries import Notice, Reply, UserMessage
from splashpy.chat.session import Session
from splashpy.errors import EngineDiedError, EngineStuckError
from splashpy.protocol import (
    Cancel,
    Failure,
    Generate,
    LoadProgress,
    Memory,
    Pong,
    Prefill,
    Queued,
    ToolDelta,
)


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
    returned = session.take_returned()
    assert returned is not None
    assert returned.text == "two"
    assert session.take_returned() is None
    assert session.idle


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
