# SPDX-License-Identifier: Apache-2.0
"""The pieces a message is drawn from: blocks, and the rows they take at a width.

A block knows its text and the prefix of its rows (a bullet, a quote bar), not where it
stands. Rows carry the logical line and column they come from, so a selection made with
the mouse gives back the text without prefixes and without the line breaks of wrapping.

Every string given to a block is already sanitized.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from rich.cells import cell_len
from textual.content import Content

TAB_CELLS = 4
EMPTY = Content("")

# Scripts without spaces between words; a row may end after any character of them.
_UNSPACED = "\u2e80-\u312f\u3190-\u9fff\uac00-\ud7a3\uf900-\ufaff\uff00-\uff60"
_CHUNK = re.compile(rf"[{_UNSPACED}]\s*|[^\s{_UNSPACED}]+\s*|\s+")


@dataclass(frozen=True, slots=True)
class Row:
    """One row of cells.

    Attributes:
        prefix: drawn first, never part of a selection.
        body: the text.
        column: where ``body`` begins in its logical line.
        line: the logical line, counted from the first one of the block.
    """

    prefix: Content
    body: Content
    column: int
    line: int


class Block(Protocol):
    """Something that can be laid out at any width."""

    @property
    def text(self) -> str:
        """The words in it, to check that none was lost."""
        ...

    def rows(self, width: int) -> list[Row]:
        """The rows it takes when ``width`` cells are there."""
        ...

    def lines(self, width: int) -> Sequence[str]:
        """Its logical lines as a selection gives them back, tabs included."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class TextBlock:
    """Lines of text with a prefix, wrapped at words.

    Attributes:
        body: the text; may hold newlines and tabs.
        first: prefix of the first row.
        rest: prefix of all other rows.
    """

    body: Content
    first: Content = EMPTY
    rest: Content = EMPTY

    @property
    def text(self) -> str:
        """The text with its first prefix."""
        return self.first.plain + self.body.plain

    def rows(self, width: int) -> list[Row]:
        """The text, wrapped."""
        rows = []
        prefix = self.first
        for number, line in enumerate(self.body.split("\n", allow_blank=True)):
            expanded = line.expand_tabs(TAB_CELLS)
            room = max(width - cell_len(prefix.plain), 1)
            for column, body in _wrapped(expanded, room):
                rows.append(Row(prefix, body, column, number))
                prefix = self.rest
        return rows

    def lines(self, width: int) -> Sequence[str]:
        """The text's own lines."""
        return self.body.plain.split("\n")


BLANK = TextBlock(EMPTY)
"""An empty row."""


@dataclass(frozen=True, slots=True, eq=False)
class HeadBlock:
    """One row with something at each end; the left end gives way."""

    left: Content
    right: Content

    @property
    def text(self) -> str:
        """Both ends."""
        return f"{self.left.plain} {self.right.plain}"

    def rows(self, width: int) -> list[Row]:
        """One row, ``width`` cells wide where it fits."""
        room = max(width - self.right.cell_length - 1, 1)
        left = self.left.truncate(room, ellipsis=True)
        space = max(width - left.cell_length - self.right.cell_length, 1)
        row = Content.assemble(left, " " * space, self.right)
        return [Row(EMPTY, row, 0, 0)]

    def lines(self, width: int) -> Sequence[str]:
        """What is on the left."""
        return [self.left.plain]


@dataclass(frozen=True, slots=True, eq=False)
class TableBlock:
    """A table whose columns share the width; cells wrap.

    Where a column would get too narrow to read, each cell becomes a line of its own,
    ``heading: value``.

    Attributes:
        header: the cells of the first row.
        body: the other rows, each as long as the header.
        aligned: ``left``, ``center`` or ``right`` per column.
        first: prefix of the first row of cells.
        rest: prefix of all others.
    """

    header: tuple[Content, ...]
    body: tuple[tuple[Content, ...], ...]
    aligned: tuple[str, ...]
    first: Content = EMPTY
    rest: Content = EMPTY

    @property
    def text(self) -> str:
        """All cells."""
        cells = [*self.header, *(cell for row in self.body for cell in row)]
        return self.first.plain + " ".join(cell.plain for cell in cells)

    def rows(self, width: int) -> list[Row]:
        """Header, rule, body."""
        room = max(width - cell_len(self.rest.plain), 1)
        widths = _fit_columns(self._natural_widths(), room)
        painted = self._as_list(room) if widths is None else list(self._grid(widths))
        prefixes = [self.first, *[self.rest] * (len(painted) - 1)]
        return [
            Row(prefix, line, 0, number)
            for number, (prefix, line) in enumerate(zip(prefixes, painted, strict=True))
        ]

    def lines(self, width: int) -> Sequence[str]:
        """The rows as they are drawn."""
        return [row.body.plain.rstrip() for row in self.rows(width)]

    def _natural_widths(self) -> list[int]:
        columns = zip(self.header, *self.body, strict=True)
        return [max(cell.cell_length for cell in column) for column in columns]

    def _grid(self, widths: list[int]) -> Iterator[Content]:
        bold = tuple(cell.stylize("bold") for cell in self.header)
        yield from self._grid_row(bold, widths)
        yield Content.styled("─┼─".join("─" * width for width in widths), _LINES)
        for row in self.body:
            yield from self._grid_row(row, widths)

    def _grid_row(
        self, cells: tuple[Content, ...], widths: list[int]
    ) -> Iterator[Content]:
        columns = [
            [body for _, body in _wrapped(cell, width)]
            for cell, width in zip(cells, widths, strict=True)
        ]
        bar = Content.styled(" │ ", _LINES)
        for index in range(max(len(column) for column in columns)):
            parts = [
                _align(column[index] if index < len(column) else EMPTY, width, aligned)
                for column, width, aligned in zip(
                    columns, widths, self.aligned, strict=True
                )
            ]
            yield bar.join(parts)

    def _as_list(self, room: int) -> list[Content]:
        lines = []
        for row in self.body:
            for name, cell in zip(self.header, row, strict=True):
                whole = Content.assemble(name.stylize("bold"), ": ", cell)
                lines += [body for _, body in _wrapped(whole, room)]
        if not self.body:
            lines = [body for cell in self.header for _, body in _wrapped(cell, room)]
        return lines


_LINES = "$foreground 40%"
_NARROWEST_COLUMN = 6
_BAR_CELLS = 3


def _fit_columns(natural: list[int], room: int) -> list[int] | None:
    """Column widths that fit, taking from the widest; None when none do."""
    widths = [max(width, 1) for width in natural]
    excess = sum(widths) + _BAR_CELLS * (len(widths) - 1) - room
    while excess > 0:
        widest = max(widths)
        index = widths.index(widest)
        second = max((width for width in widths if width < widest), default=0)
        floor = max(second, _NARROWEST_COLUMN)
        if widest <= _NARROWEST_COLUMN:
            return None
        taken = min(excess, max(widest - floor, 1))
        widths[index] -= taken
        excess -= taken
    return widths


def _align(cell: Content, width: int, aligned: str) -> Content:
    space = max(width - cell.cell_length, 0)
    left = {"left": 0, "center": space // 2, "right": space}[aligned]
    return cell.pad(left, space - left)


def _wrapped(line: Content, width: int) -> Iterator[tuple[int, Content]]:
    """The parts of a line that fit ``width`` cells, with their first column."""
    if line.cell_length <= width:
        yield 0, line
        return
    starts = wrap(line.plain, width)
    for start, part in zip(starts, line.divide(starts[1:]), strict=True):
        # The space a row ends in is not drawn: it may reach beyond the edge.
        yield start, part.rstrip()


def wrap(text: str, width: int) -> list[int]:
    """Where the rows of a line begin, so that none is wider than ``width`` cells.

    Rows end after a word; a word that is wider than a row is cut. Space at the end of
    a row does not count.

    Args:
        text: one line, without tabs.
        width: cells, at least 1.

    Returns:
        Offsets of the first character of every row; the first is 0.
    """
    if cell_len(text) <= width:
        return [0]
    starts, used = [0], 0
    for chunk in _CHUNK.finditer(text):
        word = chunk.group()
        cells = cell_len(word.rstrip())
        if used and used + cells > width:
            starts.append(chunk.start())
            used = 0
        if cells > width:
            cuts = _cut(word, width)
            starts += [chunk.start() + cut for cut in cuts]
            used = cell_len(word[cuts[-1] if cuts else 0 :])
        else:
            used += cell_len(word)
    return starts


def _cut(word: str, width: int) -> list[int]:
    if word.isascii():
        return list(range(width, len(word.rstrip()), width))
    cuts, used = [], 0
    for index, character in enumerate(word):
        cells = cell_len(character)
        if used and used + cells > width:
            cuts.append(index)
            used = 0
        used += cells
    return cuts
