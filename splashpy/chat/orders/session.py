# SPDX-License-Identifier: Apache-2.0
"""Orders about the conversation as a whole, and about leaving it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual.content import Content

from splashpy.chat.commands import COMMANDS
from splashpy.chat.screens.help import help_screen
from splashpy.chat.screens.page import PageScreen
from splashpy.errors import UsageError

if TYPE_CHECKING:
    from splashpy.chat.screens.chat import ChatScreen


def help_page(screen: ChatScreen, argument: str) -> None:
    """Show all keys and commands, or explain one command or error code."""
    word = argument.removeprefix("/")
    about = screen.conversation.machine.explain(word) if word else ""
    if word in COMMANDS:
        row = COMMANDS[word]
        about = f"/{row.name} {row.arguments}\n{row.help}"
    if about:
        screen.app.push_screen(PageScreen(word, Content(about)))
    elif word in ("", "keys"):
        screen.app.push_screen(help_screen(screen.session.settings.keys))
    else:
        raise UsageError(f"there is no help about {argument!r}", fix=["/help"])


def new(screen: ChatScreen, argument: str) -> None:
    """Begin another conversation, with a message if there is one."""
    screen.conversation.begin_anew()
    if argument:
        screen.send(argument)
    screen.leave_conversation()


def leave(screen: ChatScreen, argument: str) -> None:
    """Leave the chat."""
    screen.app.exit()
