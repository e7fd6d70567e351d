# SPDX-License-Identifier: Apache-2.0
"""What a person asks for: sending, waiting, asking again, editing and branching."""

from __future__ import annotations

import pytest
from chat.spoken import READY, ask, exchange, finish, new_session, replies_of, write

from splashpy.chat.asking import GATHER_MS
from splashpy.chat.entries import Attachment, UserMessage
from splashpy.chat.session import Session
from splashpy.errors import EngineDiedError
from splashpy.protocol import (
    Cancel,
    Count,
    Device,
    EngineHello,
    Failure,
    Generate,
    Sampling,
)


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


@pytest.mark.parametrize(
    ("device", "gather_ms"),
    [
        (Device(name="CPU x86_64", memory_bytes=8 << 30), GATHER_MS),
        (Device(name="M", memory_bytes=8 << 30, working_set_bytes=6 << 30), 0),
        (Device(), 0),  # another machine's, of which nothing is known
    ],
)
def test_cycles_are_told_together_where_the_engine_computes_on_the_same_processor(
    device: Device, gather_ms: int
) -> None:
    session = new_session()
    session.apply(EngineHello(proto=1, version="1", pid=1, device=device), 0.0)
    session.apply(READY, 0.0)
    (command,) = session.submit("one", 1.0)
    assert isinstance(command, Generate)
    assert command.gather_ms == gather_ms


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
    file = Attachment("notes.md", "text")
    session.submit("two", 1.5, [file])

    session.new_conversation(2.0)

    assert session.queued is None
    returned = session.take_returned()
    assert returned is not None
    assert (returned.text, returned.attachments) == ("two", (file,))


def test_files_are_counted_with_what_is_written(session: Session) -> None:
    (command,) = session.count("why?", [Attachment("a.md", "text")])

    assert isinstance(command, Count)
    (message,) = command.messages
    assert message["content"].startswith("a.md\n```\ntext\n```")
    assert message["content"].endswith("why?")


def test_what_hinders_an_answer_is_said_as_it_is(session: Session) -> None:
    assert session.hindrance == ""
    ask(session, "one")
    assert "ended" in session.hindrance
    session.lost(EngineDiedError("gone"))
    assert "ctrl+r" in session.hindrance
    session.restart()
    assert "loaded" in session.hindrance
