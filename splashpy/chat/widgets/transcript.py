# SPDX-License-Identifier: Apache-2.0
"""The conversation: one widget per entry, following the end unless scrolled away.

A widget costs a little in every frame even when it is out of sight. So only the latest
entries have one; earlier ones come back when the reader reaches the top.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from textual import events, on
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.reactive import reactive
from textual.widgets import Static

from splashpy.chat.bindings import bindings
from splashpy.chat.entries import Entry, Message, Notice, Reply
from splashpy.chat.widgets.message import MessageView

MOST_ENTRIES = 80
KEPT_ENTRIES = 60
EARLIER_ENTRIES = 20
MOST_ROWS = 4000
_ROW_CELLS = 80  # before the width is known
_ENTRY_ROWS = 4  # name, last line of its own, summary, space
_STEP_ROWS = 3


class Transcript(VerticalScroll):
    """Shows the entries of a session.

    Args:
        welcome: shown while there is no entry.
        emoji: show pictures in text; False spells them out.

    Attributes:
        chosen: the message that keys act on; None while the editor has them.
        new_rows: rows written below the screen since the reader scrolled away.
    """

    BINDINGS: ClassVar[list[BindingType]] = bindings("conversation")

    FOCUS_ON_CLICK = False  # who clicks on an answer goes on writing
    new_rows = reactive(0)

    def __init__(self, welcome: str, *, emoji: bool = True) -> None:
        super().__init__()
        self._emoji = emoji
        self._entries: Sequence[Entry] = ()
        self._views: dict[Entry, MessageView] = {}
        self._now = 0.0
        self._hidden = 0
        self._hidden_told = 0
        self.chosen: Message | None = None
        self._reasoning_shown = False
        self._by_origin = False
        self._rows_seen = 0
        self._welcome = Static(Content(welcome), id="welcome")
        self._earlier = Static(id="earlier")

    def compose(self) -> ComposeResult:
        """What stands above the entries."""
        yield self._welcome
        yield self._earlier

    def on_mount(self) -> None:
        """Stay at the end until the reader scrolls."""
        self.anchor()

    def sync(self, entries: Sequence[Entry], now: float) -> None:
        """Make the widgets agree with the entries.

        Args:
            entries: oldest first; what stays keeps its order.
            now: seconds of the session's clock.
        """
        self._entries, self._now = entries, now
        if self.chosen not in entries:
            self.chosen = None
        self._hidden = min(self._hidden, len(entries))
        if self.following:
            self._hidden = max(self._hidden, self._outgrown(entries))
        self._welcome.display = not entries
        self._show_hidden()
        if self._show(entries[self._hidden :]):
            self.call_after_refresh(self._count_rows)

    def _outgrown(self, entries: Sequence[Entry]) -> int:
        """How many of the first entries are too many to have a widget.

        Rows are counted from the texts: to lay out what is not shown takes seconds.
        """
        shown, width = len(entries) - self._hidden, self.size.width or _ROW_CELLS
        most = shown if shown <= MOST_ENTRIES else KEPT_ENTRIES
        rows = 0
        for below, entry in enumerate(reversed(entries)):
            rows += _rows_about(entry, width)
            if below and (below >= most or rows > MOST_ROWS):
                return len(entries) - below
        return 0

    def _show_hidden(self) -> None:
        """Say how many entries are above; writing it again would cost a layout."""
        if self._hidden != self._hidden_told:
            self._hidden_told = self._hidden
            self._earlier.display = self._hidden > 0
            self._earlier.update(Content(f"↑ {self._hidden} earlier"))

    def _show(self, shown: Sequence[Entry]) -> bool:
        """Give every entry a widget that is up to date; whether anything changed."""
        old = self._views
        self._views = {entry: old.get(entry) or self._view(entry) for entry in shown}
        changed = [view.refresh_entry(self._now) for view in self._views.values()]
        gone = [view for entry, view in old.items() if entry not in self._views]
        for view in gone:
            view.remove()
        self._mount_new(old)
        return bool(gone) or any(changed)

    def _view(self, entry: Entry) -> MessageView:
        view = MessageView(entry, emoji=self._emoji)
        view.show_reasoning = self._reasoning_shown
        view.show_origin = self._by_origin
        return view

    def _mount_new(self, old: Mapping[Entry, MessageView]) -> None:
        """Put every new widget between the ones that were there before."""
        waiting: list[MessageView] = []
        for entry, view in self._views.items():
            if entry not in old:
                waiting.append(view)
            elif waiting:
                self.mount(*waiting, before=view)
                waiting = []
        if waiting:
            self.mount(*waiting)

    @property
    def following(self) -> bool:
        """The end is on screen. Rows fewer than the screen's stand at its bottom."""
        return not self.max_scroll_y or self.scroll_y >= self.max_scroll_y

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        """The end forgets how far behind one was; the top brings what is above."""
        super().watch_scroll_y(old_value, new_value)
        self._count_rows()
        if new_value <= 0 and self._hidden and not self.following:
            self.bring_earlier()

    @on(events.Click, "#earlier")
    def bring_earlier(self) -> None:
        """Show some of the entries before the first one shown."""
        rows = self.virtual_size.height
        self._hidden = max(self._hidden - EARLIER_ENTRIES, 0)
        self.sync(self._entries, self._now)
        self.call_after_refresh(self._keep_place, rows)

    def page(self, direction: int) -> None:
        """Scroll by a page: up when ``direction`` is negative."""
        if not self.max_scroll_y:
            return  # all of it is on screen
        if direction < 0:
            self.scroll_page_up(animate=False)
        else:
            self.scroll_page_down(animate=False)

    def action_choose(self, step: int) -> None:
        """As ``choose``, for keys."""
        self.choose(step)

    def action_top(self) -> None:
        """Go to the beginning."""
        if self.max_scroll_y:
            self.scroll_home(animate=False)

    def action_follow(self) -> None:
        """Go to the end and stay there."""
        self.scroll_end(animate=False)
        # An anchored container may move without telling anybody.
        self.call_after_refresh(self._count_rows)

    def choose(self, step: int) -> None:
        """Choose another message, the last one at first, and show it.

        Where the chosen message goes on beyond the screen, scroll instead.

        Args:
            step: -1 for the one before, 1 for the next.
        """
        messages = [e for e in self._views if not isinstance(e, Notice)]
        if not messages:
            return
        if self.chosen not in self._views:
            self._choose(messages[-1])
            return
        if self._goes_on(self._views[self.chosen], step):
            self.scroll_relative(y=step * _STEP_ROWS, animate=False)
            return
        wanted = messages.index(self.chosen) + step
        if wanted < 0 and self._hidden:
            self.bring_earlier()
        elif 0 <= wanted < len(messages):
            self._choose(messages[wanted])

    def select(self, message: Message | None) -> None:
        """Choose this message, or none; one that is above comes back."""
        above = message is not None and message not in self._views
        if above:
            self._hidden = self._entries.index(message)
            self._show_hidden()
            self._show(self._entries[self._hidden :])
            self.call_after_refresh(self._choose, message)  # its place is not known yet
        self._choose(message)

    def view_of(self, message: Message) -> MessageView | None:
        """The widget of a message; None while it is not shown."""
        return self._views.get(message)

    def _choose(self, message: Message | None) -> None:
        for entry in (self.chosen, message):
            if entry is not None and entry in self._views:
                self._views[entry].set_class(entry is message, "-chosen")
        self.chosen = message
        if message in self._views:
            self.scroll_to_widget(self._views[message], animate=False)

    def _goes_on(self, view: MessageView, step: int) -> bool:
        top = view.virtual_region.y - self.scroll_offset.y
        bottom = top + view.virtual_region.height
        return top < 0 if step < 0 else bottom > self.size.height

    def action_toggle_reasoning(self) -> None:
        """Show or fold what the model thought: in the chosen answer, or the latest."""
        chosen = [self.chosen] if self.chosen in self._views else reversed(self._views)
        for entry in chosen:
            if isinstance(entry, Reply) and entry.reasoning:
                self._views[entry].toggle_reasoning()
                return

    def colour(self, *, by_origin: bool) -> None:
        """Show where tokens came from, in later answers too."""
        self._by_origin = by_origin
        for view in self._views.values():
            view.colour(by_origin=by_origin)

    @property
    def coloured(self) -> bool:
        """Whether it shows where tokens came from."""
        return self._by_origin

    def show_reasoning(self, *, shown: bool) -> None:
        """Show or fold what the model thought in every answer, later ones too."""
        self._reasoning_shown = shown
        for entry, view in self._views.items():
            if isinstance(entry, Reply) and view.show_reasoning != shown:
                view.toggle_reasoning()

    def _keep_place(self, rows_before: int) -> None:
        added = self.virtual_size.height - rows_before
        self.scroll_to(y=self.scroll_y + added, animate=False, immediate=True)

    def _count_rows(self) -> None:
        rows = self.virtual_size.height
        if self.following:
            self._rows_seen = rows
        self.new_rows = max(rows - self._rows_seen, 0)


def _rows_about(entry: Entry, width: int) -> int:
    """About how many rows an entry takes."""
    text = entry.problem.message if isinstance(entry, Notice) else entry.text
    return text.count("\n") + len(text) // width + _ENTRY_ROWS
