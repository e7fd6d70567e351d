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
        keys: what closes it, for the frame.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,f1,q,enter", "dismiss", "close", show=False),
    ]

    def __init__(self, title: str, text: Content, *, keys: str = "esc closes"):
        super().__init__()
        self._title = title
        self._text = text
        self._keys = keys

    def compose(self) -> ComposeResult:
        """One page that scrolls."""
        with VerticalScroll(id="page") as page:
            page.border_title = Content(self._title)
            page.border_subtitle = self._keys
            yield Static(self._text)
