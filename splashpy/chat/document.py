# SPDX-License-Identifier: Apache-2.0
"""Markdown that grows at its end and is parsed only where it can still change.

Block structure is decided line by line: once complete lines begin a new top-level
block (or a new item of a top-level list), everything above them is final. Groups above
them are frozen; only what follows is parsed again when text is appended. At every
moment the groups are those a parse of the whole text would give.
"""

from __future__ import annotations

from splashpy.chat.blocks import Block
from splashpy.chat.markdown import parse
from splashpy.sanitize import sanitize


class LiveDocument:
    """An answer while it is written, and after.

    Attributes:
        blocks: what to draw. A block that is final stays the same object.
    """

    def __init__(self, text: str = "") -> None:
        self.blocks: list[Block] = []
        self._frozen: list[Block] = []
        self._open = ""
        self._glued = False
        self._held = ""
        if text:
            self.append(text)

    def append(self, text: str) -> None:
        """Add raw text of any length at the end."""
        text = self._held + text
        # "\r" may be the first half of a line end; wait for what follows it.
        self._held = "\r" if text.endswith("\r") else ""
        self._open += sanitize(text.removesuffix("\r"))
        self._parse()

    def finish(self) -> None:
        """No more text comes."""
        if self._held:
            self._open += sanitize(self._held)
            self._held = ""
            self._parse()

    def _parse(self) -> None:
        groups = parse(self._open, gap=bool(self._frozen) and not self._glued)
        # Two whole lines say what a block is: a table shows only in its second.
        whole = self._open.count("\n") - 1
        settled = [i for i, group in enumerate(groups) if group.line < whole]
        cut = settled[-1] if settled else 0
        if cut:
            for group in groups[:cut]:
                self._frozen += group.blocks
            self._glued = groups[cut].glued
            self._open = _from_line(self._open, groups[cut].line)
        tail = [block for group in groups[cut:] for block in group.blocks]
        self.blocks = self._frozen + tail


def _from_line(text: str, line: int) -> str:
    start = 0
    for _ in range(line):
        start = text.index("\n", start) + 1
    return text[start:]
