# SPDX-License-Identifier: Apache-2.0
"""One line of text, asked for over the conversation."""

from __future__ import annotations

from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.widgets import Input

from splashpy.chat.screens.over import OverScreen
from splashpy.chat.widgets.field import Field


class AskScreen(OverScreen[str | None]):
    """Returns what was entered, or None.

    Args:
        title: what is asked.
        value: stands there at first.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "dismiss(None)", "close", show=False),
    ]

    def __init__(self, title: str, value: str = ""):
        super().__init__()
        self._title = title
        self._value = value

    def compose(self) -> ComposeResult:
        """The line."""
        with Vertical(id="ask") as frame:
            frame.border_title = self._title
            frame.border_subtitle = "enter takes it · esc closes"
            yield Field(self._value)

    @on(Input.Submitted)
    def _submitted(self, event: Input.Submitted) -> None:
        self.dismiss(event.value.strip() or None)
