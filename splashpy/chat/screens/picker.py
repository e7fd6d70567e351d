# SPDX-License-Identifier: Apache-2.0
"""A list over the conversation that narrows while one types."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar, NamedTuple

from rich.cells import cell_len
from textual import events, on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.widgets import Input, OptionList, Static
from textual.widgets.option_list import Option

from splashpy.chat.screens.over import OverScreen
from splashpy.chat.theme import FAINT
from splashpy.chat.widgets.field import Field
from splashpy.sanitize import sanitize, sanitize_line

_MOST_ROWS = 200
_GAP_CELLS = 2


class Row(NamedTuple):
    """One line of the list; texts need not be sanitized.

    Attributes:
        key: what choosing it returns.
        text: on the left.
        note: at the right.
        detail: below the list while it is highlighted.
    """

    key: str
    text: str
    note: str = ""
    detail: str = ""


class Deed(NamedTuple):
    """A key that does something to the highlighted row.

    Attributes:
        word: for the frame.
        do: gets the row's key; afterwards the list is read again.
        twice: it is pressed twice, for what cannot be undone.
    """

    word: str
    do: Callable[[str], object]
    twice: bool = False


class PickerScreen(OverScreen[str | None]):
    """Returns the key of the row that was chosen, or None.

    Args:
        title: of the frame.
        rows: the rows for what was typed.
        empty: shown instead of a list without rows.
        deeds: further keys, by Textual's name.
        query: stands in the field at first.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "dismiss(None)", "close", show=False),
        Binding("down", "move(1)", "down", show=False, priority=True),
        Binding("up", "move(-1)", "up", show=False, priority=True),
        Binding("pagedown", "move(10)", "down", show=False, priority=True),
        Binding("pageup", "move(-10)", "up", show=False, priority=True),
    ]

    def __init__(
        self,
        title: str,
        rows: Callable[[str], Sequence[Row]],
        *,
        empty: str,
        deeds: Mapping[str, Deed] | None = None,
        query: str = "",
    ):
        super().__init__()
        self._title = title
        self._read = rows
        self._empty = empty
        self._deeds = deeds or {}
        self._query = query
        self._rows: list[Row] = []
        self._armed = ""

    def compose(self) -> ComposeResult:
        """What is typed, the list, and more about the highlighted row."""
        with Vertical(id="picker") as frame:
            frame.border_title = self._title
            yield Field(self._query, placeholder="type to search", id="query")
            yield OptionList(id="rows", markup=False)
            yield Static(id="detail")

    def on_mount(self) -> None:
        """Read the list."""
        self._frame = self.query_one("#picker")
        self._list = self.query_one("#rows", OptionList)
        self._list.can_focus = False
        self._detail = self.query_one("#detail", Static)
        self.query_one("#query").focus()
        self._say_keys()
        self._fill()

    def _fill(self) -> None:
        at = self._list.highlighted or 0
        query = self.query_one("#query", Input).value
        self._rows = list(self._read(query))[:_MOST_ROWS]
        self._list.clear_options()
        lines = [Option(_line(row, self._width)) for row in self._rows]
        self._list.add_options(lines)
        if self._rows:
            self._list.highlighted = min(at, len(self._rows) - 1)
        self._show_detail()

    @property
    def _width(self) -> int:
        """Cells of a row."""
        return max(self._list.size.width - 2, 20)

    def _show_detail(self) -> None:
        row = self._highlighted()
        text = self._empty if row is None else row.detail
        if row is not None and not _fits(row, self._width):
            text = f"{sanitize_line(row.note)}\n{text}"
        self._detail.update(Content.styled(sanitize(text), FAINT))

    def _highlighted(self) -> Row | None:
        at = self._list.highlighted
        return self._rows[at] if at is not None and at < len(self._rows) else None

    def _say_keys(self) -> None:
        words = [f"{key} {deed.word}" for key, deed in self._deeds.items()]
        self._frame.border_subtitle = " · ".join(["enter choose", *words, "esc close"])

    def on_resize(self) -> None:
        """Rows are as wide as the list."""
        self.call_after_refresh(self._fill)

    @on(Input.Changed)
    def _typed(self) -> None:
        self._armed = ""
        self._fill()

    @on(Input.Submitted)
    def _submitted(self) -> None:
        row = self._highlighted()
        if row is not None:
            self.dismiss(row.key)

    @on(OptionList.OptionSelected)
    def _clicked(self, event: OptionList.OptionSelected) -> None:
        self.dismiss(self._rows[event.option_index].key)

    @on(OptionList.OptionHighlighted)
    def _moved(self) -> None:
        self._armed = ""
        self._say_keys()
        self._show_detail()

    def action_move(self, step: int) -> None:
        """Highlight another row."""
        if self._rows:
            wanted = (self._list.highlighted or 0) + step
            self._list.highlighted = min(max(wanted, 0), len(self._rows) - 1)

    def on_key(self, event: events.Key) -> None:
        """The keys of the deeds."""
        deed, row = self._deeds.get(event.key), self._highlighted()
        if deed is None or row is None:
            return
        event.stop()
        event.prevent_default()
        if deed.twice and self._armed != event.key:
            self._armed = event.key
            self._frame.border_subtitle = f"{event.key} again to {deed.word}"
            return
        self._armed = ""
        self._say_keys()
        deed.do(row.key)
        if self.is_current:
            self._fill()


def _fits(row: Row, width: int) -> bool:
    """Whether text and note stand side by side in full."""
    return cell_len(row.text) + _GAP_CELLS + cell_len(row.note) <= width


def _line(row: Row, width: int) -> Content:
    note = Content.styled(sanitize_line(row.note), FAINT)
    text = Content(sanitize_line(row.text))
    # The note gives way first: the text says which row it is.
    note = note.truncate(
        max(width - min(text.cell_length, width // 2) - 2, 1), ellipsis=True
    )
    text = text.truncate(max(width - note.cell_length - 2, 8), ellipsis=True)
    space = max(width - text.cell_length - note.cell_length, 1)
    return Content.assemble(text, " " * space, note)
