# SPDX-License-Identifier: Apache-2.0
"""Where a person writes: one line, or several.

What is written is drawn as it is, and not all of it is typed: a paste, the name of a
file or an answer that was copied may hold what a terminal would obey. So whatever comes
in is made visible, by whichever way it comes.
"""

from __future__ import annotations

from typing import Any

from textual.actions import SkipAction
from textual.document._document import EditResult
from textual.document._edit import Edit
from textual.widgets import Input, TextArea

from splashpy.sanitize import sanitize, sanitize_line


class Field(Input):
    """An Input whose cursor does not blink: a screen at rest costs nothing."""

    def __init__(self, value: str = "", **options: Any):
        super().__init__(value, **options)
        self.cursor_blink = False

    def action_copy(self) -> None:
        """With nothing selected the key is not for copying here."""
        if self.selection.is_empty:
            raise SkipAction
        super().action_copy()

    def validate_value(self, value: str) -> str:
        """Nothing a terminal would obey, on one line."""
        return sanitize_line(value)


class Area(TextArea):
    """The same for several lines."""

    def __init__(self, text: str = "", **options: Any):
        super().__init__(sanitize(text), **options)
        self.cursor_blink = False

    def edit(self, edit: Edit) -> EditResult:
        """Every change of the text passes here, but for the next one."""
        edit.text = harmless(edit.text)
        return super().edit(edit)

    def load_text(self, text: str) -> None:
        """Replace all of it."""
        super().load_text(harmless(text))


def harmless(text: str) -> str:
    """A text with one kind of line end and nothing a terminal would obey."""
    return sanitize(text.replace("\r\n", "\n").replace("\r", "\n"))
