# SPDX-License-Identifier: Apache-2.0
"""Markdown becomes rows: nothing is lost, and streaming ends where parsing does."""

from __future__ import annotations

import time
from itertools import cycle

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from textual.selection import Selection

from splashpy.chat.blocks import Block
from splashpy.chat.document import LiveDocument
from splashpy.chat.flow import Flow
from splashpy.chat.markdown import parse
from splashpy.sanitize import sanitize

# Pieces that open, close and continue blocks in every combination.
# fmt: off
FRAGMENTS = [
    "a", "b c", "\n", "\n\n", "a\t|b", "- ", "* ", "1. ", "2) ", "> ", "# ", "    ",
    "\t", "  ", "```", "```py\n", "~~~\n", "|", "|a|b|\n|-|-|\n|c|d|\n", "---", "===",
    "=", "-", "**", "*", "_", "`", "[x](y)", "\\[", "\\]", "$$", "\\(", "$", "<div>",
    "&lt;", "[ ] ", "[a]: b\n", "+", "\r\n", "\r", "2*3*4", "\x1b[0m", "世界", "~~",
]
# fmt: on
SOURCES = st.lists(st.sampled_from(FRAGMENTS), max_size=30)


def blocks_of(text: str) -> list[Block]:
    return [block for group in parse(sanitize(text)) for block in group.blocks]


def described(blocks: list[Block]) -> list[tuple]:
    """Everything that decides how blocks look at one width."""
    return [
        (row.prefix.plain, row.body.plain, sorted(row.body.spans))
        for block in blocks
        for row in block.rows(40)
    ]


def shown(text: str, width: int = 60) -> list[str]:
    return [
        (row.prefix.plain + row.body.plain).rstrip()
        for block in blocks_of(text)
        for row in block.rows(width)
    ]


@pytest.mark.parametrize(
    "text",
    [
        "a<b>c",
        "Vec<T> and <div>",
        "<div>\nx\n</div>",
        "&lt; stays, & too",
        "\\(a_1 * b_2 * c\\) and \\[x\\] in a line",
        "$a_1*b_2*c$ but $5 and $6",
        "2*3*4 = 24",
        "[/INST] [bold [1] [key=value]",
        "[a]: http://example.com",
        "snake_case_name and __init__",
        "`not closed and *not closed",
    ],
)
def test_what_other_parsers_eat_is_shown(text: str) -> None:
    assert shown(text) == text.split("\n")


def test_display_formulas_are_shown_with_their_delimiters() -> None:
    assert shown("\\[\na\n- b\n\\]\nafter") == ["\\[", "a", "- b", "\\]", "", "after"]
    assert shown("$$\n*x*\n$$") == ["$$", "*x*", "$$"]


def test_lists_nest_with_hanging_indents_and_their_own_numbers() -> None:
    ordered = "1. one two three\n   - inner\n     - deep\n7. next\n\n"
    text = ordered + "* other\n+ [ ] do\n+ [x] did"

    assert shown(text, 12) == [
        "1. one two",
        "   three",
        "   ◦ inner",
        "     ▪ deep",
        "7. next",
        "",
        "• other",
        "",
        "• ☐ do",
        "• ☑ did",
    ]


def test_quotes_and_code_carry_their_bars() -> None:
    text = "> said\n>\n> ```sh\n> ls -l\n> ```\n\n    indented"

    assert shown(text) == [
        "▎ said",
        "▎",
        "▎ ┃ sh",
        "▎ ┃ ls -l",
        "",
        "┃ indented",
    ]


def test_addresses_of_links_and_images_are_visible() -> None:
    assert shown('[text](http://a.b "title") and ![alt](img.png)') == [
        "text (http://a.b title) and alt (img.png)"
    ]
    assert shown("<http://a.b>") == ["http://a.b"]


def test_a_line_break_in_a_paragraph_stays_one() -> None:
    assert shown("roses are red\nviolets are blue") == [
        "roses are red",
        "violets are blue",
    ]


def test_emphasis_and_code_are_styles_not_characters() -> None:
    (block,) = blocks_of("**bold** *it* `code` ~~gone~~")

    (row,) = block.rows(40)

    assert row.body.plain == "bold it code gone"
    assert [str(span.style) for span in row.body.spans] == [
        "bold",
        "italic",
        "$text-accent",
        "strike",
    ]


@pytest.mark.parametrize(
    "text",
    [
        "> " * 400 + "deep",
        "\n".join("  " * depth + f"- level {depth}" for depth in range(120)),
        "| a | b |\n|---|---|\n| 1 | 2 | dropped |",
    ],
    ids=["quotes", "lists", "cells"],
)
def test_what_the_parser_gives_up_on_is_shown_as_written(text: str) -> None:
    assert "".join("".join(shown(text)).split()) == "".join(text.split())


def letters(text: str) -> str:
    return "".join(character for character in text if character.isalnum()).casefold()


@given(SOURCES)
@settings(max_examples=300)
def test_no_letter_is_lost(fragments: list[str]) -> None:
    text = sanitize("".join(fragments))
    rows = shown(text)

    assert letters("".join(rows).replace("☑", "x")) == letters(text)
    assert not any(character in row for row in rows for character in "\n\t\r\x1b")


@given(SOURCES)
@settings(max_examples=300)
def test_at_every_moment_a_stream_shows_what_a_full_parse_shows(
    fragments: list[str],
) -> None:
    document = LiveDocument()
    text = ""
    for fragment in fragments:
        document.append(fragment)
        text += fragment
        if not text.endswith("\r"):
            assert described(document.blocks) == described(blocks_of(text))
    document.finish()
    assert described(document.blocks) == described(blocks_of(text))


@given(SOURCES, st.lists(st.integers(1, 9), min_size=1))
@settings(max_examples=100)
def test_where_a_text_is_cut_makes_no_difference(
    fragments: list[str], sizes: list[int]
) -> None:
    text = "".join(fragments)
    document = LiveDocument()
    start = 0
    for size in cycle(sizes):
        if start >= len(text):
            break
        document.append(text[start : start + size])
        start += size
    document.finish()

    assert described(document.blocks) == described(blocks_of(text))


def test_blocks_that_ended_stay_the_same_objects() -> None:
    document = LiveDocument("first\n\nsecond\n\n- third\n- fourth\n")
    before = document.blocks
    document.append("- fifth\n- sixth\n")

    assert document.blocks[:3] == before[:3]


def test_code_that_is_too_long_or_of_no_language_has_no_colours() -> None:
    assert not colours("```\nx = 1\n```")
    assert not colours("```python\n" + "x = 1\n" * 2001 + "```")
    assert not colours("```python\nx = '" + "a" * 2001 + "'\n```")
    assert colours("```python\nx = 1\n```")
    assert colours("```no such language\nx = 1\n```") == {"$text"}


def colours(text: str) -> set[str]:
    *_, block = blocks_of(text)
    return {str(span.style) for row in block.rows(80) for span in row.body.spans}


def test_tabs_in_code_are_wide_on_screen_and_tabs_when_copied() -> None:
    flow = Flow()
    flow.show(blocks_of("```make\nall:\n\tcc x.c\n```"))

    rows = [flow.row(y, 40) for y in range(flow.height(40))]

    assert [row[0].body.plain for row in rows if row] == ["make", "all:", "    cc x.c"]
    assert flow.selected(Selection(None, None), 40) == "make\nall:\n\tcc x.c"


def cost_of_appending(text: str) -> float:
    """Seconds the last of many small appends takes, layout included."""
    document, flow = LiveDocument(text), Flow()
    seconds = []
    for _ in range(15):
        start = time.thread_time()
        document.append("and some more ")
        flow.show(document.blocks)
        flow.height(80)
        seconds.append(time.thread_time() - start)
    return min(seconds)


@pytest.mark.parametrize(
    "unit",
    [
        "- an item of a long list that says something\n",
        "a paragraph of an answer, with two lines\nof text\n\n",
        "> quoted from somewhere\n\nand answered at once\n\n",
    ],
    ids=["list", "paragraphs", "quotes"],
)
def test_a_long_answer_costs_what_its_open_end_costs(unit: str) -> None:
    short = cost_of_appending(unit * (1_000 // len(unit)))
    long = cost_of_appending(unit * (64_000 // len(unit)))

    assert long < 20 * short + 0.002


@pytest.mark.parametrize(
    "text",
    [
        "[" * 20_000,
        "*a " * 7_000,
        "`" * 20_000,
        "\\(" * 10_000,
        "<" * 20_000,
        "|" * 10_000 + "\n" + "|-" * 5_000,
        "x" * 500_000,
    ],
    ids=["brackets", "stars", "ticks", "formulas", "angles", "cells", "one line"],
)
def test_no_text_takes_the_parser_seconds(text: str) -> None:
    start = time.thread_time()
    flow = Flow()
    flow.show(blocks_of(text))
    flow.height(80)

    # A tenth of this is usual; quadratic behaviour would take minutes.
    assert time.thread_time() - start < 5
