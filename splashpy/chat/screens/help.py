# SPDX-License-Identifier: Apache-2.0
"""All keys, and what the numbers mean."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Static

from splashpy.chat.theme import FAINT
from splashpy.chat.widgets.status import NUMBERS

_KEY_CELLS = 14

_KEYS: dict[str, tuple[tuple[str, str], ...]] = {
    "Writing": (
        ("enter", "send; while an answer runs, queue one message"),
        ("ctrl+j", "new line; also shift+enter, alt+enter, or \\ then enter"),
        ("↑ ↓", "earlier prompts, from the first and last row"),
        ("ctrl+_", "undo"),
    ),
    "Answers": (
        ("esc", "stop, keeping the text; then take back the queued message"),
        ("ctrl+y", "copy the last answer as Markdown"),
        ("alt+r", "ask again for the last answer"),
        ("ctrl+n", "new conversation"),
        ("ctrl+r", "start the engine again after it ended"),
    ),
    "Reading": (
        ("pgup pgdn", "scroll; ctrl+home and ctrl+end to top and end"),
        ("shift+tab", "into the conversation: space opens thinking; esc back"),
        ("mouse", "wheel scrolls, drag selects, ctrl+c copies"),
    ),
    "Leaving": (
        ("ctrl+c", "copy, else stop, else clear the prompt, else twice to quit"),
        ("ctrl+d", "in an empty prompt, twice to quit"),
        ("ctrl+q", "quit now"),
        ("ctrl+z", "to the shell; fg comes back"),
        ("ctrl+p", "commands and colour themes"),
    ),
}

_UNDER_ANSWERS = (
    "Under an answer: its tokens, tokens per second after the first, τ over the whole\n"
    "answer, the time to the first token, and how much of the prompt came back from\n"
    "the prefix cache. A number that is not known is a dash."
)


class HelpScreen(ModalScreen[None]):
    """Help over the conversation; any of its keys closes it."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,f1,q,enter", "dismiss", "close", show=False),
    ]

    def compose(self) -> ComposeResult:
        """One page that scrolls."""
        with VerticalScroll(id="help"):
            yield Static(Content("\n").join(_lines()))

    def on_mount(self) -> None:
        """Name the page and the way out."""
        page = self.query_one("#help")
        page.border_title = "keys"
        page.border_subtitle = "esc closes"


def _lines() -> Iterator[Content]:
    for title, keys in _KEYS.items():
        yield Content.styled(title, "bold $text-primary")
        for key, meaning in keys:
            yield Content.assemble(f"  {key:<{_KEY_CELLS}}", (meaning, FAINT))
        yield Content("")
    yield Content.styled("Numbers", "bold $text-primary")
    for line in (NUMBERS + "\n" + _UNDER_ANSWERS).split("\n"):
        yield Content.styled(f"  {line}", FAINT)
