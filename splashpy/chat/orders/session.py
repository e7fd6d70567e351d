# SPDX-License-Identifier: Apache-2.0
"""Orders about the conversation as a whole, and about leaving it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from splashpy.chat.screens.help import help_screen

if TYPE_CHECKING:
    from splashpy.chat.screens.chat import ChatScreen


def help_page(screen: ChatScreen, argument: str) -> None:
    """Show all keys and commands."""
    screen.app.push_screen(help_screen(screen.conversation.session.settings.keys))


def new(screen: ChatScreen, argument: str) -> None:
    """Begin another conversation, with a message if there is one."""
    screen.conversation.begin_anew()
    if argument:
        screen.send(argument)
    screen.sync()


def leave(screen: ChatScreen, argument: str) -> None:
    """Leave the chat."""
    screen.app.exit()
