# SPDX-License-Identifier: Apache-2.0
"""The panel beside the conversation with everything that is measured."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.containers import VerticalScroll
from textual.content import Content
from textual.widgets import Static

from splashpy.chat.session import Session
from splashpy.chat.speed import speed_lines


class SpeedPanel(VerticalScroll):
    """Draws ``speed_lines``; hidden until it is asked for."""

    can_focus = False

    def __init__(self) -> None:
        super().__init__()
        self.display = False
        self.border_title = "speed"

    def compose(self) -> ComposeResult:
        """One text."""
        yield Static(id="speed")

    def page(self, direction: int) -> None:
        """Scroll by a page: up when ``direction`` is negative."""
        rows = direction * max(self.size.height - 1, 1)
        self.scroll_relative(y=rows, animate=False)

    def show(self, session: Session, now: float) -> None:
        """Draw this session, if the panel is there to be seen."""
        if self.display:
            text = Content("\n").join(speed_lines(session, now))
            self.query_one("#speed", Static).update(text)
