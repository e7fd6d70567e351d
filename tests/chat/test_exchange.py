# SPDX-License-Identifier: Apache-2.0
"""Conversations leave and come back whole."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from splashpy.chat import exchange
from splashpy.chat.entries import Attachment
from splashpy.chat.history import fenced_file
from splashpy.chat.saved import SavedConversation, SavedMessage, title_of
from splashpy.errors import InputFileError
from splashpy.fences import code_blocks

AT = "2026-03-01T12:00:00.000Z"


def numbers():
    counter = itertools.count()
    return lambda: f"N{next(counter)}"


def conversation() -> SavedConversation:
    asked = SavedMessage(
        id="A",
        parent=None,
        role="user",
        content="# why?",
        created_at=AT,
        attachments=(Attachment("a.md", "```\ncode\n```"),),
    )
    first = SavedMessage(
        id="B",
        parent="A",
        role="assistant",
        content="because",
        created_at=AT,
        model="demo",
        reasoning="hm",
        trace=b"\x31",
    )
    second = SavedMessage(
        id="C",
        parent="A",
        role="assistant",
        content="well",
        created_at=AT,
        model="demo",
        state="stopped",
        error={"code": "E-X", "fix": ["a"]},
    )
    return SavedConversation(
        id="K",
        title='a "title"',
        created_at=AT,
        model="demo",
        system="Be brief.",
        parameters={"temperature": 0.5},
        leaf="C",
        messages=(asked, first, second),
    )


def test_markdown_is_the_shown_path_with_its_facts() -> None:
    text = exchange.to_markdown(conversation(), reasoning=True)

    assert text.startswith('---\ntitle: "a \\"title\\""\nmodel: "demo"\n')
    assert "temperature: 0.5" in text
    assert "## System\n\nBe brief.\n" in text
    assert "a.md\n````\n```\ncode\n```\n````\n" in text
    assert "## demo\n\nwell\n\n*(stopped)*\n" in text
    assert "because" not in text


def test_json_comes_back_as_the_same_tree_under_new_ids() -> None:
    original = conversation()

    copy = exchange.from_json(exchange.to_json(original), new_id=numbers())

    assert copy.id not in ("A", "B", "C", "K")
    assert [m.content for m in copy.path()] == ["# why?", "well"]
    ids = [m.id for m in copy.messages]
    assert [m.parent for m in copy.messages] == [None, ids[0], ids[0]]
    for ours, theirs in zip(original.messages, copy.messages, strict=True):
        for name in ("content", "reasoning", "state", "trace", "attachments"):
            assert getattr(ours, name) == getattr(theirs, name)


@pytest.mark.parametrize(
    "change",
    [
        {"schema": "other/1"},
        {"messages": None},
        {"title": 5},
        {"messages": [{"role": "robot"}]},
        {"messages": [{"id": "A", "role": "user", "parent": "later"}]},
        {"parameters": {"temperature": "hot"}},
        {"parameters": {"effort": 5}},
        {"answer": {"done": ["stop"]}},
        {"answer": {"done": {"ev": "done", "id": 7}}},
        {"answer": {"error": "text"}},
        {"answer": {"trace": "no base64"}},
    ],
)
def test_anything_else_is_refused_with_the_reason(change: dict) -> None:
    data = json.loads(exchange.to_json(conversation())) | change
    for message in (data["messages"] or [])[-1:]:
        message |= change.get("answer", {})

    with pytest.raises(InputFileError, match="not an exported conversation"):
        exchange.from_json(json.dumps(data), new_id=numbers())
    with pytest.raises(InputFileError):
        exchange.from_json("[1]", new_id=numbers())
    with pytest.raises(InputFileError):
        exchange.from_json("[" * 200_000, new_id=numbers())


def test_files_are_private_and_never_replaced(tmp_path: Path) -> None:
    path = tmp_path / "a.md"
    exchange.write_text(path, "text")

    assert path.stat().st_mode & 0o777 == 0o600
    with pytest.raises(InputFileError, match="exists"):
        exchange.write_text(path, "other")
    assert path.read_text() == "text"
    with pytest.raises(InputFileError, match="cannot be read"):
        exchange.read_json(tmp_path / "missing", new_id=numbers())


@given(st.text(alphabet="`a\n ", max_size=40))
def test_a_fence_holds_any_file(text: str) -> None:
    (block,) = code_blocks(fenced_file(Attachment("name", text))) or ("",)

    assert block.rstrip("\n") == text.rstrip("\n")


def test_titles_and_file_names_are_short_and_plain() -> None:
    assert title_of("\n  first line \nsecond") == "first line"
    assert title_of("x" * 80) == "x" * 60 + "…"
    named = SavedConversation(id="K", title="../a/B c: d?", created_at=AT)
    assert exchange.file_name(named, "md") == "a-b-c-d.md"
    empty = SavedConversation(id="K", title="…", created_at=AT)
    assert exchange.file_name(empty, "md") == "K.md"
