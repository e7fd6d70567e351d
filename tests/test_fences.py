# SPDX-License-Identifier: Apache-2.0
"""Fenced code blocks in an answer."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from splashpy.fences import code_blocks


@pytest.mark.parametrize(
    ("text", "blocks"),
    [
        ("no code", []),
        ("```\na\n```", ["a\n"]),
        ("x\n```python\na\n\nb\n```\ny", ["a\n\nb\n"]),
        ("~~~\n```\n~~~", ["```\n"]),
        ("````\n```\nx\n```\n````", ["```\nx\n```\n"]),
        ("```\na\n```\n```\nb\n```", ["a\n", "b\n"]),
        ("```\nunclosed", ["unclosed\n"]),
        ("   ```\na\n   ```", ["a\n"]),
        ("    ```\nindented four: no fence", []),
        ("```not a fence``` on one line", []),
        ("```\n```", [""]),
    ],
)
def test_blocks_are_found_as_commonmark_has_them(text: str, blocks: list[str]) -> None:
    assert code_blocks(text) == blocks


@given(st.lists(st.text(alphabet="ab \t", max_size=8), min_size=1, max_size=6))
def test_what_was_fenced_is_what_is_found(lines: list[str]) -> None:
    content = "".join(f"{line}\n" for line in lines)

    assert code_blocks(f"Before\n```x\n{content}```\nafter") == [content]
