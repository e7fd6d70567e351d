# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from textual.content import Content

from splashpy.chat.blocks import Row, TextBlock
from splashpy.chat.flow import Flow

WIDTH = 12
texts = st.text(st.sampled_from("ab \n\u4e16\t"), max_size=80)


def looks_of(flow: Flow) -> list[tuple[str, str, object]]:
    def look(row: Row) -> tuple[str, str, object]:
        return row.prefix.plain, row.body.plain, row.body.spans

    rows = [flow.row(y, WIDTH) for y in range(flow.height(WIDTH))]
    return [look(found[0]) for found in rows if found is not None]


@given(st.lists(texts, max_size=3), texts, texts, st.sampled_from(["", "bold"]))
def test_rows_above_the_first_change_look_as_before(
    above: list[str], old: str, new: str, style: str
) -> None:
    blocks = [TextBlock(Content(text)) for text in above]
    flow = Flow()
    flow.show([*blocks, TextBlock(Content(old))])
    before = looks_of(flow)

    changed = flow.show([*blocks, TextBlock(Content.styled(new, style))])

    assert looks_of(flow)[:changed] == before[:changed]


def test_a_word_more_changes_the_last_row_of_a_paragraph() -> None:
    text = "several words of a paragraph " * 9
    flow = Flow()
    flow.show([TextBlock(Content(text))])
    rows = flow.height(WIDTH)

    assert flow.show([TextBlock(Content(text + "more"))]) >= rows - 1
