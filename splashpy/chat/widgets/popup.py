# SPDX-License-Identifier: Apache-2.0
"""What could be meant by what is being typed, over the conversation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from textual.content import Content
from textual.widget import Widget

from splashpy.chat.theme import FAINT
from splashpy.sanitize import sanitize_line

ROWS = 8


class Choice(NamedTuple):
    """One row: what is put in place of the typed word, and what is shown of it."""

    insert: str
    text: str
    note: str = ""


class CompletionPopup(Widget):
    """Shows at most eight choices, one of them highlighted; hidden without any."""

    can_focus = False

    def __init__(self) -> None:
        super().__init__()
        self._choices: Sequence[Choice] = ()
        self._at = 0
        self.display = False

    def show(self, choices: Sequence[Choice]) -> None:
        """Show these from now on."""
        if tuple(choices) == tuple(self._choices):
            return
        self._choices = choices
        self._at = 0
        self.display = bool(choices)
        self.styles.height = min(len(choices), ROWS)
        self.refresh()

    def move(self, step: int) -> None:
        """Highlight another row, from the last to the first and back."""
        self._at = (self._at + step) % len(self._choices)
        self.refresh()

    @property
    def choice(self) -> Choice | None:
        """The highlighted row."""
        return self._choices[self._at] if self._choices else None

    def render(self) -> Content:
        """The rows around the highlighted one."""
        first = max(0, min(self._at - ROWS + 1, len(self._choices) - ROWS))
        shown = self._choices[first : first + ROWS]
        return Content("\n").join(
            self._row(choice, chosen=first + number == self._at)
            for number, choice in enumerate(shown)
        )

    def _row(self, choice: Choice, *, chosen: bool) -> Content:
        row = Content.assemble(
            "› " if chosen else "  ",
            sanitize_line(choice.text),
            "  ",
            Content.styled(sanitize_line(choice.note), FAINT),
        )
        row = row.truncate(max(self.size.width, 1), ellipsis=True)
        return row.stylize("reverse", 0, len(row)) if chosen else row
