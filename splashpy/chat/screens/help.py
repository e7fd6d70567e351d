# SPDX-License-Identifier: Apache-2.0
"""All keys and commands, and what the numbers mean."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import groupby
from textwrap import wrap

from textual.content import Content

from splashpy.chat.commands import COMMANDS
from splashpy.chat.keys import ACTIONS, rebound, spelled
from splashpy.chat.screens.page import PageScreen
from splashpy.chat.theme import FAINT
from splashpy.chat.widgets.status import NUMBERS

_KEY_CELLS = 22
_LEAST_TEXT_CELLS = 30
_INDENT = 6
_GROUPS = ("Writing", "Answers", "Reading", "Panels", "Chosen", "Leaving")
_TITLES = {"Chosen": "The chosen message (alt+up, or shift+tab and up)"}
_FIXED = {
    "Writing": (
        ("up  down", "earlier prompts, from the first and last row"),
        ("/", "commands"),
    ),
    "Reading": (
        ("shift+tab", "into the conversation; esc back"),
        ("mouse", "wheel scrolls, drag selects, ctrl+c copies"),
    ),
    "Leaving": (("ctrl+p", "everything there is, and colour themes"),),
}

_IN_THE_PANEL = (
    "In the speed panel: a pass that commits more tokens than it costs saves steps of\n"
    "plain decoding, one that commits fewer loses them, by the costs that were known\n"
    "when it was decided who drafts, or that nobody does."
)
_UNDER_ANSWERS = (
    "Under an answer: its tokens, tokens per second after the first, τ over the whole\n"
    "answer, the time to the first token, and how much of the prompt came back from\n"
    "the prefix cache. A number that is not known is a dash."
)


def help_screen(chosen: Mapping[str, str]) -> PageScreen:
    """Help over the conversation.

    Args:
        chosen: keys a person gave to actions, by action id.
    """
    keys = rebound(chosen)
    return PageScreen("keys", lambda width: Content("\n").join(_lines(keys, width)))


def _lines(keys: Mapping[str, str], width: int) -> Iterator[Content]:
    rows = sorted(ACTIONS, key=lambda row: _GROUPS.index(row.group))
    for group, actions in groupby(rows, key=lambda row: row.group):
        yield _heading(_TITLES.get(group, group))
        for row in actions:
            yield _row(spelled(keys[row.id]), row.help, width)
        for names, meaning in _FIXED.get(group, ()):
            yield _row(names, meaning, width)
        yield Content("")
    yield _heading("Commands")
    for command in COMMANDS.values():
        spelling = f"/{command.name} {command.arguments}".rstrip()
        yield _row(spelling, command.help, width)
    yield Content("")
    yield _heading("Numbers")
    for text in (NUMBERS, _UNDER_ANSWERS, _IN_THE_PANEL):
        for line in text.split("\n"):
            for part in wrap(line, max(width - 2, 1)):
                yield Content.styled(f"  {part}", FAINT)


def _heading(text: str) -> Content:
    return Content.styled(text, "bold $text-primary")


def _row(left: str, right: str, width: int) -> Content:
    """Keys and what they do: side by side, or below each other where it is narrow."""
    column = _KEY_CELLS + 3
    beside = width - column >= _LEAST_TEXT_CELLS
    indent = column if beside else _INDENT
    lines = wrap(right, max(width - indent, 1))
    text = f"\n{'':<{indent}}".join(lines)
    if beside and len(left) <= _KEY_CELLS:
        return Content.assemble(f"  {left:<{_KEY_CELLS}} ", (text, FAINT))
    return Content.assemble(f"  {left}\n{'':<{indent}}", (text, FAINT))
