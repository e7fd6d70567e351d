# SPDX-License-Identifier: Apache-2.0
"""What slash commands do where there are only lines."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from splashpy.chat import exchange, files, meters
from splashpy.chat.commands import COMMANDS
from splashpy.chat.entries import Reply
from splashpy.chat.parameters import TABLE, changed, default, shown
from splashpy.errors import UsageError
from splashpy.units import format_tokens

if TYPE_CHECKING:
    from splashpy.chat.line_mode import LineChat


def help_lines(chat: LineChat, argument: str) -> None:
    """List what can be said here."""
    for row in (COMMANDS[known] for known in LINE_COMMANDS):
        chat.tell(f"/{row.name} {row.arguments}: {row.help}")


def new(chat: LineChat, argument: str) -> None:
    """Begin another conversation."""
    chat.session.new_conversation(time.perf_counter())
    if argument:
        chat.answer(argument)


def retry(chat: LineChat, argument: str) -> None:
    """Ask again for the last answer."""
    _run(chat, chat.session.can_retry, chat.session.retry)


def resume(chat: LineChat, argument: str) -> None:
    """Write on where the last answer broke off."""
    _run(chat, chat.session.unfinished, chat.session.resume)


def _run(chat: LineChat, possible: object, ask: Callable) -> None:
    if not possible:
        raise UsageError("there is no such answer")
    chat.run(ask(time.perf_counter()))


def system(chat: LineChat, argument: str) -> None:
    """Set the system prompt."""
    chat.session.settings = replace(chat.session.settings, system=argument or None)


def change(chat: LineChat, argument: str) -> None:
    """Set a parameter; alone, show all."""
    session = chat.session
    ready = session.engine.ready
    if argument:
        word, _, value = argument.partition(" ")
        session.settings = changed(session.settings, word, value, ready)
        return
    for word in TABLE:
        value = shown(session.settings, word) or default(word, ready)
        chat.tell(f"{word}: {value}")


def parameter(name: str) -> Callable[[LineChat, str], None]:
    """The order that sets one parameter."""
    return lambda chat, argument: change(chat, f"{name} {argument}")


def attach(chat: LineChat, argument: str) -> None:
    """Send a text file with the next message."""
    if not argument:
        raise UsageError("/attach needs the path of a text file")
    path = files.path_of(argument)
    chat.files.append(files.read(path, ""))
    chat.tell(f"goes with the next message: {path}")


def export(chat: LineChat, argument: str) -> None:
    """Write the conversation to a file."""
    archive = chat.keeper
    if archive is None or archive.conversation is None:
        raise UsageError("nothing is saved in this chat")
    archive.flush()
    name = archive.conversation
    saved = archive.ask(lambda store: store.read(name))
    form, _, path = argument.partition(" ")
    if form not in ("", "md", "json"):
        form, path = ("json" if argument.endswith(".json") else "md"), argument
    write = exchange.to_json if form == "json" else exchange.to_markdown
    target = files.path_of(path or exchange.file_name(saved, form or "md"))
    exchange.write_text(target, write(saved))
    chat.tell(f"written: {target}")


def stats(chat: LineChat, argument: str) -> None:
    """The numbers of every answer of this conversation."""
    for message in chat.session.tree.path():
        if isinstance(message, Reply) and message.done is not None:
            chat.tell(meters.summary(message.done))


def context(chat: LineChat, argument: str) -> None:
    """How full the context is."""
    session = chat.session
    used, ready = session.context_used, session.engine.ready
    shown_used = meters.UNKNOWN if used is None else format_tokens(used)
    limit = meters.UNKNOWN if ready is None else format_tokens(ready.context_max)
    chat.tell(f"{shown_used} of {limit} tokens at the last answer")


def copy(chat: LineChat, argument: str) -> None:
    """Print the last answer again, alone, to be taken with the mouse."""
    replies = [m for m in chat.session.tree.path() if isinstance(m, Reply) and m.text]
    if not replies:
        raise UsageError("there is no answer yet")
    chat.tell(replies[-1].text)


def reload(chat: LineChat, argument: str) -> None:
    """End the engine and start it again."""
    chat.begin_again()


LINE_ORDERS: Mapping[str, Callable[[LineChat, str], None]] = {
    "help": help_lines,
    "new": new,
    "retry": retry,
    "continue": resume,
    "system": system,
    "set": change,
    "effort": parameter("effort"),
    "seed": parameter("seed"),
    "draft": parameter("draft"),
    "attach": attach,
    "export": export,
    "copy": copy,
    "stats": stats,
    "context": context,
    "reload": reload,
}
"""Slash commands that need no screen."""

LINE_COMMANDS = (*LINE_ORDERS, "quit")
