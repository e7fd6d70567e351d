# SPDX-License-Identifier: Apache-2.0
"""Orders for when something is wrong: last error, log, machine, a picture."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from textual.content import Content

from splashpy.chat.entries import Notice, Problem, Reply
from splashpy.chat.exchange import write_text
from splashpy.chat.files import path_of
from splashpy.chat.keeper import utc_now
from splashpy.chat.screens.error import ErrorScreen
from splashpy.chat.screens.page import PageScreen
from splashpy.errors import UsageError
from splashpy.sanitize import sanitize

if TYPE_CHECKING:
    from splashpy.chat.screens.chat import ChatScreen


def error(screen: ChatScreen, argument: str) -> None:
    """Show the last error in full."""
    problem = screen.problem or _last_problem(screen)
    if problem is None:
        raise UsageError("nothing went wrong so far")
    about = screen.conversation.machine.explain(problem.code)
    screen.app.push_screen(ErrorScreen(problem, about))


def _last_problem(screen: ChatScreen) -> Problem | None:
    for entry in reversed(screen.session.entries):
        if isinstance(entry, Notice) and not entry.remark:
            return entry.problem
        if isinstance(entry, Reply) and entry.problem is not None:
            return entry.problem
    return None


def log(screen: ChatScreen, argument: str) -> None:
    """Show the end of the engine's log."""
    _show_later(screen, "the engine's log", screen.conversation.machine.log)


def doctor(screen: ChatScreen, argument: str) -> None:
    """Show what this machine runs."""
    screen.say("looking at this machine")
    _show_later(screen, "doctor", screen.conversation.machine.doctor)


def _show_later(screen: ChatScreen, title: str, read: Callable[[], str]) -> None:
    """Show a text that takes its time, without making anybody wait for it."""

    def show(text: str) -> None:
        page = PageScreen(title, Content(sanitize(text) or "nothing is known"))
        screen.app.push_screen(page)

    screen.later(read, show)


def screenshot(screen: ChatScreen, argument: str) -> None:
    """Save a picture of the screen, as SVG."""
    path = path_of(argument or f"splashpy-{utc_now().replace(':', '')}.svg")
    write_text(path, screen.app.export_screenshot())
    screen.say(f"saved: {path}")
