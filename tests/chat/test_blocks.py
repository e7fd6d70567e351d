# SPDX-License-Identifier: Apache-2.0
"""Rows fit, words stay whole, and a selection gives back what was written."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from textual.content import Content
from textual.geometry import Offset
from textual.selection import Selection

from splashpy.chat.blocks import BLANK, HeadBlock, TableBlock, TextBlock, wrap
from splashpy.chat.flow import Flow

TEXTS = st.text(st.sampled_from("ab c-世界é👍❤️\u0301 "), max_size=60)


def rows_of(text: str, width: int) -> list[str]:
    starts = [*wrap(text, width), len(text)]
    return [text[start:end].rstrip() for start, end in pairwise(starts)]


def test_a_line_breaks_after_words() -> None:
    assert rows_of("one two three", 8) == ["one two", "three"]
    assert rows_of("one two three", 7) == ["one two", "three"]
    assert rows_of("one two three", 6) == ["one", "two", "three"]


def test_a_word_wider_than_the_row_is_cut() -> None:
    assert rows_of("ab cdefghij", 4) == ["ab", "cdef", "ghij"]


def test_scripts_without_spaces_break_between_characters() -> None:
    assert rows_of("世界世界世", 4) == ["世界", "世界", "世"]
    assert rows_of("ab世界", 4) == ["ab世", "界"]


def test_indentation_is_kept_on_the_first_row() -> None:
    assert rows_of("    one two", 8) == ["    one", "two"]


@given(TEXTS, st.integers(2, 20))
def test_every_row_fits_and_no_character_is_lost(text: str, width: int) -> None:
    starts = wrap(text, width)
    rows = TextBlock(Content(text)).rows(width)

    assert starts == sorted(set(starts))
    assert starts[0] == 0
    assert all(cell_len(row.body.plain) <= width for row in rows)
    assert "".join("".join(row.body.plain for row in rows).split()) == "".join(
        text.split()
    )


def test_space_at_the_end_of_a_line_takes_no_row_and_no_cell() -> None:
    rows = TextBlock(Content("word" + " " * 40)).rows(10)

    assert [row.body.plain for row in rows] == ["word"]


def test_prefixes_stand_on_the_first_and_on_further_rows() -> None:
    block = TextBlock(Content("one two\nthree"), Content("• "), Content("  "))

    rows = block.rows(7)

    shown = [row.prefix.plain + row.body.plain for row in rows]
    assert shown == ["• one", "  two", "  three"]
    assert [(row.line, row.column) for row in rows] == [(0, 0), (0, 4), (1, 0)]


def test_a_table_shares_the_width_between_its_columns() -> None:
    table = TableBlock(
        (Content("name"), Content("what it does")),
        ((Content("a"), Content("one two three four five six")),),
        ("left", "right"),
    )

    assert [row.body.plain for row in table.rows(22)] == [
        "name │    what it does",
        "─────┼────────────────",
        "a    │   one two three",
        "     │   four five six",
    ]


def test_a_table_too_narrow_for_columns_becomes_lines() -> None:
    table = TableBlock(
        (Content("first"), Content("second"), Content("third")),
        ((Content("a long cell"), Content("b"), Content("c")),),
        ("left", "left", "left"),
    )

    rows = [row.body.plain for row in table.rows(16)]

    assert rows == ["first: a long", "cell", "second: b", "third: c"]


@given(
    st.lists(st.lists(TEXTS, min_size=2, max_size=2), min_size=1, max_size=4),
    st.integers(1, 60),
)
def test_a_table_fits_any_width(cells: list[list[str]], width: int) -> None:
    header, *body = [tuple(Content(cell) for cell in row) for row in cells]
    table = TableBlock(header, tuple(body), ("left", "center"))

    assert all(cell_len(row.body.plain) <= max(width, 2) for row in table.rows(width))


def test_the_left_end_of_a_head_gives_way() -> None:
    block = HeadBlock(Content("a very long name"), Content("14:02"))

    assert block.rows(30)[0].body.plain == "a very long name         14:02"
    assert block.rows(12)[0].body.plain == "a ver… 14:02"


def select(flow: Flow, start: tuple[int, int], end: tuple[int, int]) -> str:
    return flow.selected(Selection(Offset(*start), Offset(*end)), 20)


def test_a_selection_leaves_out_prefixes_and_wrapping() -> None:
    flow = Flow()
    flow.show(
        [
            TextBlock(Content("one two three four five"), Content("• "), Content("  ")),
            BLANK,
            TextBlock(Content("\tx = 1\nend"), Content("┃ "), Content("┃ ")),
        ]
    )

    assert flow.height(20) == 5
    assert flow.selected(Selection(None, None), 20) == (
        "one two three four five\n\n\tx = 1\nend"
    )
    assert select(flow, (4, 0), (13, 0)) == "two three"
    # The tab takes four cells; the selection begins after it.
    assert select(flow, (4, 2), (3, 3)) == "x = 1\nend"


@pytest.mark.parametrize("y", [-1, 99])
def test_there_is_no_row_outside_a_flow(y: int) -> None:
    flow = Flow()
    flow.show([BLANK])

    assert flow.row(y, 10) is None


def test_a_block_that_stays_keeps_its_rows() -> None:
    first, second = TextBlock(Content("a")), TextBlock(Content("b"))
    flow = Flow()
    flow.show([first])
    before = flow.row(0, 10)
    flow.show([first, second])
    after = flow.row(0, 10)

    assert before is not None
    assert after is not None
    assert after[0] is before[0]
    assert flow.height(10) == 2
