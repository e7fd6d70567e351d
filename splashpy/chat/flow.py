# SPDX-License-Identifier: Apache-2.0
"""Blocks one below the other: how high they are, and which row is where.

Rows are laid out once per block and width. A block that stays the same object from
one frame to the next keeps its rows, so a streamed answer costs what its open end
costs.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate, takewhile

from textual.selection import Selection

from splashpy.chat.blocks import TAB_CELLS, Block, Row


@dataclass(slots=True)
class Flow:
    """A column of blocks.

    Attributes:
        blocks: from top to bottom; replace it with ``show``.
    """

    blocks: Sequence[Block] = ()
    _width: int = 0
    _rows: dict[Block, list[Row]] = field(default_factory=dict)
    _tops: list[int] = field(default_factory=list)
    _first_lines: list[int] = field(default_factory=list)

    def show(self, blocks: Sequence[Block]) -> int:
        """Lay out these blocks from now on; known ones keep their rows.

        Returns:
            The first row that differs from before, at the width laid out last.
        """
        pairs = zip(self.blocks, blocks, strict=False)
        same = sum(1 for _ in takewhile(lambda pair: pair[0] is pair[1], pairs))
        top = self._tops[same] if self._tops else 0
        old = self._rows.get(self.blocks[same], []) if self._tops[same + 1 :] else []
        self.blocks = blocks
        self._rows = {b: self._rows[b] for b in blocks if b in self._rows}
        self._tops = []
        if not old or same == len(blocks):
            return top
        self._lay_out(self._width)
        rows = zip(old, self._rows[blocks[same]], strict=False)
        return top + sum(1 for _ in takewhile(lambda pair: _alike(*pair), rows))

    def height(self, width: int) -> int:
        """Rows all blocks take together."""
        self._lay_out(width)
        return self._tops[-1]

    def row(self, y: int, width: int) -> tuple[Row, int] | None:
        """The row at ``y`` and its logical line counted from the top of the flow."""
        self._lay_out(width)
        if not 0 <= y < self._tops[-1]:
            return None
        index = bisect_right(self._tops, y) - 1
        row = self._rows[self.blocks[index]][y - self._tops[index]]
        return row, self._first_lines[index] + row.line

    def selected(self, selection: Selection, width: int) -> str:
        """The text a selection covers, without prefixes and wrapping."""
        lines = [line for block in self.blocks for line in block.lines(width)]
        parts = []
        for number, line in enumerate(lines):
            span = selection.get_span(number)
            if span is not None:
                start, end = (_source_column(line, column) for column in span)
                parts.append(line[start:end])
        return "\n".join(parts)

    def _lay_out(self, width: int) -> None:
        if width != self._width:
            self._rows, self._tops, self._width = {}, [], width
        if self._tops:
            return
        for block in self.blocks:
            if block not in self._rows:
                self._rows[block] = block.rows(width)
        heights = [len(self._rows[block]) for block in self.blocks]
        line_counts = [self._rows[block][-1].line + 1 for block in self.blocks]
        self._tops = list(accumulate(heights, initial=0))
        self._first_lines = list(accumulate(line_counts, initial=0))


def _alike(one: Row, other: Row) -> bool:
    """Whether two rows look the same."""
    same_body = one.body.is_same(other.body)
    return same_body and one.prefix.is_same(other.prefix)


def _source_column(line: str, column: int) -> int | None:
    """Where in a line a column of its tab-expanded form lies; None is the end."""
    if column == -1:
        return None
    if "\t" not in line:
        return column
    width = 0
    for index, character in enumerate(line):
        if width >= column:
            return index
        width += TAB_CELLS - width % TAB_CELLS if character == "\t" else 1
    return len(line)
