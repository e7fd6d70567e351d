# SPDX-License-Identifier: Apache-2.0
"""A session without an engine: what is said in it, and what an engine would answer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from splashpy.chat.entries import Entry, Reply
from splashpy.chat.session import Session
from splashpy.chat.settings import ChatSettings
from splashpy.protocol import (
    Cycle,
    Done,
    Generate,
    Load,
    Piece,
    Ready,
    Usage,
)

READY = Ready(model="m", context_max=100, block_size=8)


def new_session(**settings: Any) -> Session:
    return Session(
        Load(model="/models/demo", name="demo"),
        ChatSettings(**settings),
        time_of_day=lambda: "14:02",
    )


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
