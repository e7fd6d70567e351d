# SPDX-License-Identifier: Apache-2.0
"""Orders about what is shown: panels, colours, thinking, themes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual.content import Content

from splashpy.chat.screens.page import PageScreen
from splashpy.chat.speed import speed_lines, totals
from splashpy.chat.themes import use_theme
from splashpy.errors import UsageError

if TYPE_CHECKING:
    from splashpy.chat.screens.chat import ChatScreen


def speed(screen: ChatScreen, argument: str) -> None:
    """Show or hide the speed panel."""
    screen.show_panel(shown=not screen.panel.display)


def stats(screen: ChatScreen, argument: str) -> None:
    """Everything measured, on a page."""
    now = screen.conversation.now()
    lines = [*speed_lines(screen.session, now), *totals(screen.session)]
    screen.app.push_screen(PageScreen("numbers", Content("\n").join(lines)))


def colour(screen: ChatScreen, argument: str) -> None:
    """Show where tokens came from, or Markdown again."""
    transcript = screen.transcript
    transcript.colour(by_origin=not transcript.coloured)


def thinking(screen: ChatScreen, argument: str) -> None:
    """Show or fold what the model thinks."""
    if argument not in ("show", "hide"):
        raise UsageError("/thinking show, or /thinking hide")
    screen.transcript.show_reasoning(shown=argument == "show")


def mouse(screen: ChatScreen, argument: str) -> None:
    """Give the mouse to the chat, or leave it to the terminal."""
    if argument not in ("on", "off"):
        raise UsageError("/mouse on, or /mouse off")
    if screen.prompt.attachments:
        raise UsageError("send the attached files first, or take them back: /detach")
    # Textual takes the mouse when it starts, so the screen is started again.
    screen.app.exit(argument == "on")


def theme(screen: ChatScreen, argument: str) -> None:
    """Change the colours, or list the themes."""
    use_theme(screen.app, argument, screen.session.settings.themes)
