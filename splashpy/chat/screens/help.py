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
_TEXT_CELLS = 52
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
    return PageScreen("keys", Content("\n").join(_lines(rebound(chosen))))


def _lines(keys: Mapping[str, str]) -> Iterator[Content]:
    rows = sorted(ACTIONS, key=lambda row: _GROUPS.index(row.group))
    for group, actions in groupby(rows, key=lambda row: row.group):
        yield _heading(_TITLES.get(group, group))
        for fixed in _FIXED.get(group, ()):
            yield _row(*fixed)
        for row in actions:
            yield _row(spelled(keys[row.id]), row.help)
        yield Content("")
    yield _heading("Commands")
    for command in COMMANDS.values():
        yield _row(f"/{command.name} {command.arguments}".rstrip(), command.help)
    yield Content("")
    yield _heading("Numbers")
    for line in "\n".join((NUMBERS, _UNDER_ANSWERS, _IN_THE_PANEL)).split("\n"):
        yield Content.styled(f"  {line}", FAINT)


def _heading(text: str) -> Content:
    return Content.styled(text, "bold $text-primary")


def _row(left: str, right: str) -> Content:
    first, *more = wrap(right, _TEXT_CELLS)
    if len(left) > _KEY_CELLS:
        left += f"\n  {'':<{_KEY_CELLS}}"
    text = "".join([first, *(f"\n{'':<{_KEY_CELLS + 3}}{line}" for line in more)])
    return Content.assemble(f"  {left:<{_KEY_CELLS}} ", (text, FAINT))
