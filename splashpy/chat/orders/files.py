# SPDX-License-Identifier: Apache-2.0
"""Orders about the files that are sent with a message."""

from __future__ import annotations

from typing import TYPE_CHECKING

from splashpy.chat.files import path_of
from splashpy.errors import UsageError

if TYPE_CHECKING:
    from splashpy.chat.screens.chat import ChatScreen


def attach(screen: ChatScreen, argument: str) -> None:
    """Send a text file with the next message."""
    if not argument:
        raise UsageError("/attach needs the path of a text file")
    screen.writing.attach(path_of(argument))


def detach(screen: ChatScreen, argument: str) -> None:
    """Take one file back, or all."""
    files = screen.prompt.attachments
    if not argument:
        screen.prompt.attachments = []
    elif argument.isdecimal() and 1 <= int(argument) <= len(files):
        at = int(argument) - 1
        screen.prompt.attachments = [*files[:at], *files[at + 1 :]]
    else:
        raise UsageError(f"there is no file {argument}; there are {len(files)}")
    screen.sync()
