# SPDX-License-Identifier: Apache-2.0
"""Two quiet lines around the editor: the waiting message, and the keys."""

from __future__ import annotations

from textual.content import Content
from textual.widget import Widget

from splashpy.chat.blocks import TAB_CELLS
from splashpy.chat.entries import Attachment
from splashpy.chat.theme import FAINT
from splashpy.sanitize import sanitize, sanitize_line
from splashpy.units import format_bytes

_BETWEEN = Content("   ")
_KEYS = (
    ("^N", "new"),
    ("^S", "chats"),
    ("^L", "model"),
    ("^Y", "copy"),
    ("F2", "parameters"),
    ("F3", "speed"),
    ("F4", "colour drafts"),
    ("F1", "keys"),
    ("^Q", "quit"),
)


class QueuedMessage(Widget):
    """The message that is sent when the present answer ends."""

    def __init__(self) -> None:
        super().__init__()
        self._text: str | None = None
        self.display = False

    def show(self, text: str | None) -> None:
        """Draw this message, or hide when there is none."""
        if text != self._text:
            self._text = text
            self.display = text is not None
            self.refresh()

    def render(self) -> Content:
        """Its beginning, and how many lines there are."""
        lines = sanitize(self._text or "").strip("\n").split("\n")
        more = f" (+{len(lines) - 1} lines)" if len(lines) > 1 else ""
        tail = Content.styled(f"{more}  esc takes it back", FAINT)
        first = lines[0].expandtabs(TAB_CELLS)
        head = Content.assemble(Content.styled("next: ", "$text-warning"), first)
        room = max(self.size.width - tail.cell_length, 1)
        return Content.assemble(head.truncate(room, ellipsis=True), tail)


class AttachedFiles(Widget):
    """The files that are sent with the next message."""

    def __init__(self) -> None:
        super().__init__()
        self._files: list[Attachment] = []
        self.display = False

    def show(self, files: list[Attachment]) -> bool:
        """Draw these, or hide when there are none; whether they are others."""
        if files == self._files:
            return False
        self._files = list(files)
        self.display = bool(files)
        self.refresh()
        return True

    def render(self) -> Content:
        """Their names and sizes."""
        parts = [
            f"⎘ {sanitize_line(f.name)} ({format_bytes(len(f.text.encode()))})"
            for f in self._files
        ]
        line = Content.styled("   ".join(parts), "$text-accent")
        tail = Content.styled("  /detach", FAINT)
        room = max(self.size.width - tail.cell_length, 1)
        return Content.assemble(line.truncate(room, ellipsis=True), tail)


class HintFooter(Widget):
    """The keys worth knowing, or a sentence that matters for a moment."""

    def __init__(self) -> None:
        super().__init__()
        self._sentence = ""

    def say(self, sentence: str) -> None:
        """Show a sentence in place of the keys; empty shows the keys again."""
        self._sentence = sentence
        self.set_class(bool(sentence), "-said")  # then even a small terminal shows it
        self.refresh()

    def render(self) -> Content:
        """The sentence or the keys."""
        if self._sentence:
            return Content.styled(self._sentence, "$text-warning")
        shown = Content("")
        for key, word in _KEYS:
            one = Content.assemble(key, " ", Content.styled(word, FAINT))
            longer = _BETWEEN.join([shown, one]) if shown else one
            if longer.cell_length > self.size.width:
                break
            shown = longer
        return shown
