# SPDX-License-Identifier: Apache-2.0
"""The page of parameters: a field each, checked while one types."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, VerticalScroll
from textual.content import Content
from textual.widgets import Input, Label, Static

from splashpy.chat.parameters import TABLE, changed, default, shown
from splashpy.chat.screens.over import OverScreen
from splashpy.chat.settings import ChatSettings
from splashpy.chat.theme import FAINT
from splashpy.chat.widgets.field import Area, Field
from splashpy.errors import UsageError
from splashpy.protocol import Ready
from splashpy.sanitize import sanitize, sanitize_line

_KEYS = "enter or F2 applies · esc leaves them"


class ParametersScreen(OverScreen[ChatSettings | None]):
    """Returns the changed settings, or None.

    Args:
        settings: present ones.
        ready: what the model offers, as far as known.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "dismiss(None)", "leave it", show=False, priority=True),
        Binding("ctrl+s,f2", "apply", "apply", show=False, priority=True),
        Binding("down", "app.focus_next", "next", show=False),
        Binding("up", "app.focus_previous", "previous", show=False),
    ]

    def __init__(self, settings: ChatSettings, ready: Ready | None):
        super().__init__()
        self._settings = settings
        self._ready = ready

    def compose(self) -> ComposeResult:
        """A row for each parameter, then the system prompt."""
        with VerticalScroll(id="parameters") as page:
            page.border_title = "parameters of this conversation"
            page.can_focus = False  # the first field has the cursor
            page.border_subtitle = _KEYS
            for name in TABLE:
                usual = sanitize_line(default(name, self._ready))
                with Horizontal(classes="parameter"):
                    yield Label(name)
                    yield Field(shown(self._settings, name), placeholder=usual, id=name)
                    yield Static(
                        Content.styled(TABLE[name].help, FAINT),
                        id=f"{name}-note",
                        classes="note",
                    )
            yield Label("system prompt")
            system = self._settings.system or ""
            yield Area(system, id="system", tab_behavior="focus")

    @on(Input.Changed)
    def _check(self, event: Input.Changed) -> None:
        name = event.input.id or ""
        note = self.query_one(f"#{name}-note", Static)
        page = self.query_one("#parameters")
        try:
            changed(self._settings, name, event.value, self._ready)
        except UsageError as error:
            note.update(Content.styled(sanitize_line(error.why), "$text-error"))
            # A narrow page has no room for the notes.
            page.border_subtitle = Content(sanitize_line(f"{name}: {error.why}"))
        else:
            note.update(Content.styled(TABLE[name].help, FAINT))
            page.border_subtitle = _KEYS

    @on(Input.Submitted)
    def action_apply(self) -> None:
        """Return the settings; a field that is not allowed keeps the page open."""
        settings = self._settings
        for name in TABLE:
            field = self.query_one(f"#{name}", Input)
            try:
                settings = changed(settings, name, field.value, self._ready)
            except UsageError:
                field.focus()
                self.app.bell()
                return
        area = self.query_one("#system", Area)
        if area.text.strip() != sanitize(self._settings.system or "").strip():
            settings = replace(settings, system=area.text.strip() or None)
        self.dismiss(settings)
