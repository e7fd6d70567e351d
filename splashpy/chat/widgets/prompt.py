# SPDX-License-Identifier: Apache-2.0
"""The prompt editor: Enter sends, a paste never does.

A terminal without bracketed paste delivers a paste as keys, its line ends as Enter.
Keys of a paste follow each other within milliseconds, keys of a person do not. So an
Enter that arrives in such a burst waits a moment: if more keys follow, or the burst
already had a line end, it was part of a paste and becomes a newline.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import ClassVar

from textual import events
from textual.binding import BindingType
from textual.timer import Timer
from textual.widgets import TextArea

from splashpy.chat.bindings import bindings
from splashpy.chat.entries import Attachment
from splashpy.chat.messages import (
    Completed,
    EndPressed,
    PasteRefused,
    PromptSubmitted,
    QuitPressed,
)
from splashpy.chat.prompt_history import PromptHistory
from splashpy.chat.widgets.field import Area, harmless
from splashpy.chat.widgets.popup import Choice, CompletionPopup

_LARGEST_PASTE = 1 << 20  # characters; beyond it the editor would stop answering
_LONG_PASTE_LINES = 12
_LONG_PASTE_CHARACTERS = 1500
_BETWEEN = " · "
_BURST_SECONDS = 0.01  # no person presses two keys this fast
_BURST_END_SECONDS = 0.05


class PromptEditor(Area):
    """Where a message is written.

    Its text is what is sent: control characters are made visible when they are
    pasted, so nothing invisible leaves the editor.

    Args:
        enter_sends: False: enter begins a line.

    Attributes:
        keep_prompt: called with every text that enters the history.
        popup: what could be meant, where it is shown.
        attachments: files that are sent with the message.
        earlier: prompts that were sent or cleared.
    """

    BINDINGS: ClassVar[list[BindingType]] = bindings("prompt")

    def __init__(self, *, enter_sends: bool = True) -> None:
        super().__init__(
            tab_behavior="indent", show_line_numbers=False, highlight_cursor_line=False
        )
        self.enter_sends = enter_sends
        self.keep_prompt: Callable[[str], object] = lambda _: None
        self.popup: CompletionPopup | None = None
        self.attachments: list[Attachment] = []
        self._pastes: dict[str, str] = {}
        self._pasted = 0
        self.earlier = PromptHistory()
        self._previous_key_at = 0.0
        self._burst_newlines = 0
        self._held_enter: Timer | None = None

    def on_resize(self) -> None:
        """Name the keys there is room for."""
        send, line = ("enter", "ctrl+j") if self.enter_sends else ("ctrl+j", "enter")
        keys = [f"{send} send", f"{line} new line", "f1 keys"]
        while len(_BETWEEN.join(keys)) > self.size.width and len(keys) > 1:
            keys.pop()
        hint = _BETWEEN.join(keys)
        if self.border_subtitle != hint:
            self.border_subtitle = hint

    def on_mount(self) -> None:
        """Follow every layout: a row above the editor moves it."""
        layouts = self.screen.screen_layout_refresh_signal
        layouts.subscribe(self, self._place_caret, immediate=True)

    def _place_caret(self, _: object) -> None:
        """Keep the terminal's own cursor at the caret: input methods write beside it.

        Textual moves it when the text changes, by the layout before that change.
        """
        caret = self.cursor_screen_offset
        if self.has_focus and self.app.cursor_position != caret:
            self.app.cursor_position = caret
            self.refresh()  # the cursor goes with the next thing that is drawn

    @property
    def message(self) -> str:
        """The text with every collapsed paste in full: what is sent."""
        return self.expanded(self.text)

    def expanded(self, text: str) -> str:
        """A part of the text with every collapsed paste in full."""
        if not self._pastes:
            return text
        # All at once: what was pasted may itself look like a label.
        labels = "|".join(map(re.escape, self._pastes))
        return re.sub(labels, lambda found: self._pastes[found[0]], text)

    def put(self, text: str) -> None:
        """Replace the text and set the cursor behind it."""
        self.text = text
        self.move_cursor(self.document.end)

    def take(self) -> str:
        """Remove the text from the editor; it can be found in the history."""
        text = self.message
        if text.strip():
            self.remember(text)
        self.text = ""
        self._pastes, self._pasted = {}, 0
        return text

    def remember(self, text: str) -> None:
        """Add a text to the history."""
        self.earlier.add(text)
        self.keep_prompt(text)

    def remember_earlier(self, text: str) -> None:
        """Add a text of an earlier chat to the history."""
        self.earlier.add(text)

    # --- keys ---------------------------------------------------------------------

    async def _on_key(self, event: events.Key) -> None:
        in_burst = event.time - self._previous_key_at < _BURST_SECONDS
        self._previous_key_at = event.time
        if self._completes(event):
            return
        if self._held_enter is not None:
            self._release_enter(submit=not in_burst and not self._burst_newlines)
        if not in_burst:
            self._burst_newlines = 0
        if event.key != "enter" or not self.enter_sends:
            return
        event.stop()
        event.prevent_default()
        if in_burst:
            self._held_enter = self.set_timer(_BURST_END_SECONDS, self._burst_over)
        else:
            self.action_send()

    def _completes(self, event: events.Key) -> bool:
        """Let the popup have the keys it knows; whether it had this one."""
        popup = self.popup
        if popup is None or not popup.display or popup.choice is None:
            return False
        match event.key:
            case "up" | "down":
                popup.move(-1 if event.key == "up" else 1)
            case "tab":
                self.complete(popup.choice)
            case "enter" if popup.choice.insert.startswith("@") or (
                not self.text.endswith(popup.choice.insert.rstrip())
            ):
                self.complete(popup.choice)  # a file whose name is whole, too
            case _:
                return False
        event.stop()
        event.prevent_default()
        return True

    def complete(self, choice: Choice) -> None:
        """Put a choice in place of the word before the cursor."""
        row, column = self.cursor_location
        start = len(self.document[row][:column].rstrip()) - len(self.word)
        self.replace(choice.insert, (row, max(start, 0)), (row, column))
        self.post_message(Completed(choice))

    @property
    def word(self) -> str:
        """What stands between the last space and the cursor."""
        row, column = self.cursor_location
        return self.document[row][:column].rpartition(" ")[2]

    def _burst_over(self) -> None:
        self._release_enter(submit=self._burst_newlines == 0)

    def _release_enter(self, *, submit: bool) -> None:
        if self._held_enter is not None:
            self._held_enter.stop()
        self._held_enter = None
        if submit:
            self.action_send()
        else:
            self._burst_newlines += 1
            self.action_newline()

    def action_send(self) -> None:
        """Send the text; or show a collapsed paste, or end a line with a backslash."""
        row, column = self.cursor_location
        if self._expand_at(row, column):
            return
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
        self._insert_paste(event.text)
        self.focus()

    def action_paste(self) -> None:
        """Insert what was copied last in the chat."""
        self._insert_paste(self.app.clipboard)

    def _insert_paste(self, text: str) -> None:
        if len(text) > _LARGEST_PASTE:
            self.post_message(PasteRefused(len(text)))
            return
        self._type(self._collapsed(harmless(text)))
        self.scroll_cursor_visible()

    def _collapsed(self, text: str) -> str:
        """A long paste as a label that stands for it."""
        lines = text.count("\n") + 1
        if lines < _LONG_PASTE_LINES and len(text) < _LONG_PASTE_CHARACTERS:
            return text
        size = f"{lines:,} lines" if lines > 1 else f"{len(text):,} characters"
        self._pasted += 1  # never a number twice, or one would stand for the other
        label = f"[paste {self._pasted} · {size}]"
        self._pastes[label] = text
        return label

    def _expand_at(self, row: int, column: int) -> bool:
        """Show a collapsed paste in full, when the cursor stands in its label."""
        line = self.document[row]
        for label, text in self._pastes.items():
            start = line.find(label)
            if start >= 0 and start < column < start + len(label):
                self.replace(text, (row, start), (row, start + len(label)))
                del self._pastes[label]
                return True
        return False

    # --- history ------------------------------------------------------------------

    def action_cursor_up(self, select: bool = False) -> None:  # noqa: FBT001, FBT002
        """Up a row; on the first row, to the prompt before."""
        first = self.navigator.is_first_wrapped_line(self.cursor_location)
        if select or not first:
            super().action_cursor_up(select)
        else:
            self._recall(self.earlier.older(self.text))

    def action_cursor_down(self, select: bool = False) -> None:  # noqa: FBT001, FBT002
        """Down a row; on the last row, to the prompt after."""
        last = self.navigator.is_last_wrapped_line(self.cursor_location)
        if select or not last:
            super().action_cursor_down(select)
        else:
            self._recall(self.earlier.newer())

    def action_cursor_line_end(self, select: bool = False) -> None:  # noqa: FBT001, FBT002
        """To the end of the row; in an empty editor, of the conversation."""
        if self.text:
            super().action_cursor_line_end(select)
        else:
            self.post_message(EndPressed())

    def _recall(self, text: str | None) -> None:
        if text is not None:
            with self.prevent(TextArea.Changed):
                self.put(text)

    def on_text_area_changed(self) -> None:
        """An edit ends the walk through the history."""
        self.earlier.leave()
