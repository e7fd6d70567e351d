# SPDX-License-Identifier: Apache-2.0
"""The prompt editor: Enter sends, a paste never does.

A terminal without bracketed paste delivers a paste as keys, its line ends as Enter.
Keys of a paste follow each other within milliseconds, keys of a person do not. So an
Enter that arrives in such a burst waits a moment: if more keys follow, or the burst
already had a line end, it was part of a paste and becomes a newline.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from textual import events
from textual.binding import BindingType
from textual.timer import Timer
from textual.widgets import TextArea

from splashpy.chat.bindings import bindings
from splashpy.chat.messages import PasteRefused, PromptSubmitted, QuitPressed
from splashpy.chat.prompt_history import PromptHistory
from splashpy.sanitize import sanitize

_LARGEST_PASTE = 1 << 20  # characters; beyond it the editor would stop answering
_BURST_SECONDS = 0.01  # no person presses two keys this fast
_BURST_END_SECONDS = 0.05


class PromptEditor(TextArea):
    """Where a message is written.

    Its text is what is sent: control characters are made visible when they are
    pasted, so nothing invisible leaves the editor.

    Attributes:
        keep_prompt: called with every text that enters the history.
    """

    BINDINGS: ClassVar[list[BindingType]] = bindings("prompt")

    def __init__(self) -> None:
        super().__init__(
            tab_behavior="indent", show_line_numbers=False, highlight_cursor_line=False
        )
        self.cursor_blink = False
        self.border_subtitle = "enter send · ctrl+j new line · f1 keys"
        self.keep_prompt: Callable[[str], object] = lambda _: None
        self._history = PromptHistory()
        self._previous_key_at = 0.0
        self._burst_newlines = 0
        self._held_enter: Timer | None = None

    def put(self, text: str) -> None:
        """Replace the text and set the cursor behind it."""
        self.text = sanitize(text)
        self.move_cursor(self.document.end)

    def take(self) -> str:
        """Remove the text from the editor; it can be found in the history."""
        text = self.text
        if text.strip():
            self.remember(text)
        self.text = ""
        return text

    def remember(self, text: str) -> None:
        """Add a text to the history."""
        self._history.add(text)
        self.keep_prompt(text)

    def remember_earlier(self, text: str) -> None:
        """Add a text of an earlier chat to the history."""
        self._history.add(text)

    # --- keys ---------------------------------------------------------------------

    async def _on_key(self, event: events.Key) -> None:
        in_burst = event.time - self._previous_key_at < _BURST_SECONDS
        self._previous_key_at = event.time
        if self._held_enter is not None:
            self._release_enter(submit=not in_burst and not self._burst_newlines)
        if not in_burst:
            self._burst_newlines = 0
        if event.key != "enter":
            return
        event.stop()
        event.prevent_default()
        if in_burst:
            self._held_enter = self.set_timer(_BURST_END_SECONDS, self._burst_over)
        else:
            self._submit()

    def _burst_over(self) -> None:
        self._release_enter(submit=self._burst_newlines == 0)

    def _release_enter(self, *, submit: bool) -> None:
        if self._held_enter is not None:
            self._held_enter.stop()
        self._held_enter = None
        if submit:
            self._submit()
        else:
            self._burst_newlines += 1
            self.action_newline()

    def _submit(self) -> None:
        row, column = self.cursor_location
        if column and self.document[row][column - 1] == "\\":
            self.replace("\n", start=(row, column - 1), end=(row, column))
            return
        if self.text.strip():
            self.post_message(PromptSubmitted())

    def action_newline(self) -> None:
        """Insert a line break."""
        self._type("\n")

    def _type(self, text: str) -> None:
        start, end = self.selection
        self.replace(text, start, end, maintain_selection_offset=False)

    def action_delete_or_quit(self) -> None:
        """Delete to the right; in an empty editor, ask to leave."""
        if self.text:
            self.action_delete_right()
        else:
            self.post_message(QuitPressed())

    # --- paste --------------------------------------------------------------------

    async def _on_paste(self, event: events.Paste) -> None:
        event.stop()
        event.prevent_default()
        if len(event.text) > _LARGEST_PASTE:
            self.post_message(PasteRefused(len(event.text)))
            return
        text = event.text.replace("\r\n", "\n").replace("\r", "\n")
        self._type(sanitize(text))
        self.scroll_cursor_visible()
        self.focus()

    # --- history ------------------------------------------------------------------

    def action_cursor_up(self, select: bool = False) -> None:  # noqa: FBT001, FBT002
        """Up a row; on the first row, to the prompt before."""
        first = self.navigator.is_first_wrapped_line(self.cursor_location)
        if select or not first:
            super().action_cursor_up(select)
        else:
            self._recall(self._history.older(self.text))

    def action_cursor_down(self, select: bool = False) -> None:  # noqa: FBT001, FBT002
        """Down a row; on the last row, to the prompt after."""
        last = self.navigator.is_last_wrapped_line(self.cursor_location)
        if select or not last:
            super().action_cursor_down(select)
        else:
            self._recall(self._history.newer())

    def _recall(self, text: str | None) -> None:
        if text is not None:
            with self.prevent(TextArea.Changed):
                self.put(text)

    def on_text_area_changed(self) -> None:
        """An edit ends the walk through the history."""
        self._history.leave()
