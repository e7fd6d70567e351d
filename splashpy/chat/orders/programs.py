# SPDX-License-Identifier: Apache-2.0
"""Orders that hand the terminal to another program for a while."""

from __future__ import annotations

import shlex
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from textual.app import SuspendNotSupported

from splashpy.chat.orders.messages import named_message
from splashpy.errors import UsageError
from splashpy.sanitize import sanitize

if TYPE_CHECKING:
    from splashpy.chat.screens.chat import ChatScreen


def editor(screen: ChatScreen, argument: str) -> None:
    """Write the message in the person's own editor."""
    command = screen.session.settings.editor
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "message.md"
        path.write_text(screen.prompt.message, encoding="utf-8", errors="replace")
        _run(screen, command, path, variable="EDITOR")
        text = path.read_text(encoding="utf-8", errors="replace")
    screen.prompt.put(text.rstrip("\n"))
    screen.app.refresh()


def pager(screen: ChatScreen, argument: str) -> None:
    """Read a message in the person's own pager: the chosen one, or the last answer."""
    message = named_message(screen, argument)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "message.md"
        # A pager may hand on what a terminal would obey.
        path.write_text(sanitize(message.text), encoding="utf-8")
        _run(screen, screen.session.settings.pager, path, variable="PAGER")
    screen.app.refresh()


def _run(screen: ChatScreen, program: str, path: Path, *, variable: str) -> None:
    try:
        command = shlex.split(program)
        with screen.app.suspend():
            subprocess.call([*command, str(path)])
    except SuspendNotSupported:
        raise UsageError("this terminal cannot be handed to a program") from None
    except (OSError, ValueError) as error:
        raise UsageError(
            f"the program {program!r} cannot be started",
            why=getattr(error, "strerror", "") or str(error),
            fix=[f"set {variable} to one that is installed"],
        ) from None
