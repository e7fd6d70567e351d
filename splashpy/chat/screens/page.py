# SPDX-License-Identifier: Apache-2.0
"""A page of text over the conversation."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.widgets import Static

from splashpy.chat.screens.over import OverScreen
from splashpy.sanitize import sanitize_line

_SCROLLBAR_CELLS = 1


class PageScreen(OverScreen[None]):
    """Shows a text until any of its keys closes it.

    Args:
        title: of the frame; it need not be sanitized.
        text: what it says, or what it says at a width in cells; already sanitized.
        keys: what closes it, for the frame.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,f1,q,enter", "dismiss", "close", show=False),
    ]

    def __init__(
        self,
        title: str,
        text: Content | Callable[[int], Content],
        *,
        keys: str = "esc closes",
    ):
        super().__init__()
        self._title = title
        self._text = text
        self._keys = keys

    def compose(self) -> ComposeResult:
        """One page that scrolls."""
        with VerticalScroll(id="page") as page:
            page.border_title = Content(sanitize_line(self._title))
            page.border_subtitle = self._keys
            yield Static(self._text if isinstance(self._text, Content) else "")

    def on_resize(self) -> None:
        """Write again what depends on the width."""
        if not isinstance(self._text, Content):
            room = self.query_one("#page").content_size.width - _SCROLLBAR_CELLS
            self.query_one(Static).update(self._text(room))
