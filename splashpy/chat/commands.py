# SPDX-License-Identifier: Apache-2.0
"""The one table of slash commands, and how one is read from what a person typed.

What a command does stands in ``orders``; this table imports nothing, so it can be
listed and completed anywhere.
"""

from __future__ import annotations

from difflib import get_close_matches
from typing import NamedTuple

from splashpy.errors import UsageError


class Command(NamedTuple):
    """One row: what is typed, what may follow, and what it does in one line."""

    name: str
    arguments: str
    help: str


COMMANDS = {
    row.name: row
    for row in (
        Command("help", "[COMMAND|CODE]", "keys, commands, and what numbers mean"),
        Command("keys", "", "all keys"),
        Command("new", "[TEXT]", "new conversation"),
        Command("chats", "[TEXT]", "saved conversations: search, open, delete"),
        Command("rename", "TITLE", "give this conversation another title"),
        Command("delete", "now", "delete this conversation"),
        Command("export", "[md|json] [PATH]", "write this conversation to a file"),
        Command("import", "PATH", "open an exported JSON file as a copy"),
        Command("retry", "[NAME=VALUE]", "ask again, with other parameters once"),
        Command("continue", "", "write on where the last answer broke off"),
        Command("edit", "[N]", "edit the Nth message, the last one by default"),
        Command("branch", "[N]", "go on from the Nth answer"),
        Command("copy", "[last|code|chat|raw|file|N]", "copy an answer, or parts"),
        Command("prompts", "[TEXT]", "search earlier prompts"),
        Command("model", "[NAME]", "another model, and whether it fits"),
        Command("reload", "", "end the engine and start it again"),
        Command("unload", "", "free the model until the next message"),
        Command("race", "[TEXT]", "a message with drafts and without"),
        Command("log", "", "the end of the engine's log"),
        Command("doctor", "", "what this machine runs"),
        Command("error", "", "the last error in full"),
        Command("screenshot", "[PATH]", "save the screen as SVG"),
        Command("system", "[TEXT|@FILE]", "the system prompt; alone: show it"),
        Command("set", "[NAME VALUE]", "a parameter; alone: show all"),
        Command("parameters", "", "all of them on one page"),
        Command("effort", "LEVEL|next", "how long the model thinks"),
        Command("seed", "N|default", "same seed, same text"),
        Command("draft", "on|off|color", "decode with drafts or without; colour them"),
        Command("editor", "", "write in $VISUAL or $EDITOR"),
        Command("pager", "[N]", "read the Nth message, or the last, in $PAGER"),
        Command("attach", "PATH", "send a text file with the message; also @"),
        Command("detach", "[N]", "take the Nth file back, or all"),
        Command("context", "", "who uses how many tokens"),
        Command("compact", "[N]", "have the oldest N turns summed up"),
        Command("stats", "", "everything measured about this conversation"),
        Command("speed", "", "show or hide the speed panel"),
        Command("colour", "", "colour tokens by where they came from"),
        Command("thinking", "show|hide", "show or fold what the model thinks"),
        Command("theme", "[NAME]", "colours of the screen"),
        Command("mouse", "on|off", "whether the chat has the mouse"),
        Command("quit", "", "leave"),
    )
}
ALIASES = {"exit": "quit", "bye": "quit", "q": "quit", "?": "help"}


def parse(text: str) -> tuple[str, str] | None:
    """The command a text is, and what follows it.

    Args:
        text: as it stands in the editor.

    Returns:
        Name and arguments; None when the text is a message. ``//text`` is one.

    Raises:
        UsageError: it begins with a slash, and there is no such command.
    """
    if not text.startswith("/") or text.startswith("//"):
        return None
    word, _, rest = text[1:].partition(" ")
    if "\n" in word or "/" in word:
        return None  # a path, or a text of several lines
    name = ALIASES.get(word, word)
    if name not in COMMANDS:
        near = get_close_matches(word, [*COMMANDS, *ALIASES], n=1)
        raise UsageError(
            f"there is no command /{word}",
            why=f"the nearest is /{near[0]}" if near else "/help lists them",
        )
    return name, rest.strip()


def parse_quietly(text: str) -> str | None:
    """The name of the command a text is or may become; None for a message."""
    if not text.startswith("/") or text.startswith("//"):
        return None
    return text[1:].partition(" ")[0]


def message_of(text: str) -> str:
    """The message a text is: ``//x`` sends ``/x``, and ``// x`` is no command."""
    return text[1:] if text.startswith("//") and not text[2:3].isspace() else text


def matching(start: str) -> list[Command]:
    """Commands whose name begins with a word, then those that contain it."""
    first = [row for name, row in COMMANDS.items() if name.startswith(start)]
    inside = [row for name, row in COMMANDS.items() if start in name]
    return first + [row for row in inside if row not in first]
