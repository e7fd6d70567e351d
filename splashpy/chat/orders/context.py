# SPDX-License-Identifier: Apache-2.0
"""Orders about the context: what fills it, and what to do when it is full."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from textual.content import Content

from splashpy.chat.entries import Problem, Reply
from splashpy.chat.meters import UNKNOWN
from splashpy.chat.screens.page import PageScreen
from splashpy.chat.screens.picker import PickerScreen, Row
from splashpy.chat.session import Session
from splashpy.chat.theme import FAINT
from splashpy.errors import UsageError
from splashpy.sanitize import sanitize_line
from splashpy.units import format_tokens

if TYPE_CHECKING:
    from splashpy.chat.screens.chat import ChatScreen

_TEXT_CELLS = 44
_COUNT_CELLS = 8


def show(screen: ChatScreen, argument: str) -> None:
    """Show who uses how many tokens."""
    lines = context_lines(screen.session)
    screen.app.push_screen(PageScreen("context", Content("\n").join(lines)))


def context_lines(session: Session) -> list[Content]:
    """The shares of everything that is sent.

    The engine counts the whole; single shares follow from the length of the texts and
    are marked as estimates.
    """
    parts = [("system prompt", len(session.settings.system or ""))]
    for message in session.tree.path():
        name = message.name if isinstance(message, Reply) else "You"
        size = len(message.text) if message.in_history else 0
        parts.append((f"{name}: {message.text}", size))
        if not isinstance(message, Reply):
            parts += [(f"  {f.name}", len(f.text)) for f in message.attachments]
    used, whole = session.context_used, sum(size for _, size in parts)
    limit = session.engine.ready.context_max if session.engine.ready else None
    lines = [
        Content.assemble(
            Content.styled(f"{_part(size, used, whole):>{_COUNT_CELLS}}  ", FAINT),
            Content(sanitize_line(text))[:_TEXT_CELLS],
        )
        for text, size in parts
        if size or not text.startswith("system")
    ]
    total = UNKNOWN if used is None else format_tokens(used)
    most = UNKNOWN if limit is None else format_tokens(limit)
    lines += [
        Content(""),
        Content(f"{total:>{_COUNT_CELLS}}  of {most} at the last answer"),
        Content.styled("\n~ estimated from the length; a dash is not sent.", FAINT),
        Content.styled("/compact has the model sum up the oldest turns.", FAINT),
    ]
    return lines


def _part(size: int, used: int | None, whole: int) -> str:
    if not size or used is None:
        return UNKNOWN
    return "~" + format_tokens(round(used * size / whole))


def compact(screen: ChatScreen, argument: str) -> None:
    """Have the oldest turns summed up; they are not sent any more then."""
    turns = len(screen.session.turns)
    if screen.session.hindrance or not turns:
        raise UsageError(screen.session.hindrance or "there is nothing to sum up yet")
    if argument and not (argument.isdecimal() and 1 <= int(argument) <= turns):
        raise UsageError(f"/compact N, with N from 1 to {turns}")
    screen.conversation.compact(int(argument or turns))
    screen.transcript.action_follow()
    screen.sync()


def ask_what_to_send(screen: ChatScreen, problem: Problem) -> None:
    """The context is too small for a message: let a person decide.

    Args:
        screen: of the conversation.
        problem: what the engine said, with its numbers.
    """
    session = screen.session
    turns = len(session.turns)
    half = (turns + 1) // 2
    numbers = "\n".join(part for part in (problem.message, problem.why) if part)
    rows = [Row("cancel", "change nothing", detail=numbers)]
    if session.settings.max_tokens is not None:
        rows.append(Row("shorten", "let the answer take what is left", detail=numbers))
    if turns:
        rows += [
            Row(
                "leave",
                f"leave out the oldest {half} of {turns} turns",
                detail="They stay to be read, and are marked as not sent.",
            ),
            Row(
                "compact",
                f"have the model sum up the oldest {half} turns",
                detail="The summary takes their place; they stay to be read.",
            ),
        ]

    if len(rows) == 1:
        return  # the message itself is too long, as it says where it stands

    def chosen(key: str | None) -> None:
        match key:
            case "shorten":
                session.settings = replace(session.settings, max_tokens=None)
                screen.say("send it again")
            case "leave":
                oldest = [m for turn in session.turns[:half] for m in turn]
                session.leave_out(oldest)
                screen.say("send it again")
            case "compact":
                screen.attempt(lambda: compact(screen, str(half)))
            case _:
                pass
        screen.sync()

    screen.app.push_screen(
        PickerScreen(
            "the context is full",
            lambda query: [row for row in rows if query.lower() in row.text],
            empty="",
        ),
        chosen,
    )
