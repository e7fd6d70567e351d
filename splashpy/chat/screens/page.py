# SPDX-License-Identifier: Apache-2.0
"""A page of text over the conversation."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Static


class PageScreen(ModalScreen[None]):
    """Shows a text until any of its keys closes it.

    Args:
        title: of the frame.
        text: what it says; already sanitized.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,f1,q,enter", "dismiss", "close", show=False),
    ]

    def __init__(self, title: str, text: Content):
        super().__init__()
        self._title = title
        self._text = text

    def compose(self) -> ComposeResult:
        """One page that scrolls."""
        with VerticalScroll(id="page") as page:
            page.border_title = self._title
            page.border_subtitle = "esc closes"
            yield Static(self._text)
