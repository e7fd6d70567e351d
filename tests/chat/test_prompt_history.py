# SPDX-License-Identifier: Apache-2.0
"""Walking through earlier prompts."""

from __future__ import annotations

import pytest

from splashpy.chat.prompt_history import PromptHistory


@pytest.fixture
def history() -> PromptHistory:
    history = PromptHistory()
    for prompt in ("explain this", "sum it up", "explain that"):
        history.add(prompt)
    return history


def test_older_prompts_come_newest_first(history: PromptHistory) -> None:
    walked = [history.older("") for _ in range(4)]

    assert walked == ["explain that", "sum it up", "explain this", None]


def test_a_walk_ends_at_the_draft_it_began_with(history: PromptHistory) -> None:
    history.older("")
    history.older("")

    assert history.newer() == "explain that"
    assert history.newer() == ""
    assert history.newer() is None


def test_only_prompts_that_begin_like_the_draft_are_walked(
    history: PromptHistory,
) -> None:
    walked = [history.older("explain") for _ in range(3)]

    assert walked == ["explain that", "explain this", None]
    assert [history.newer(), history.newer()] == ["explain that", "explain"]


def test_an_edit_starts_a_new_walk(history: PromptHistory) -> None:
    history.older("")
    history.leave()

    assert history.older("sum") == "sum it up"


def test_a_repeated_prompt_is_kept_once(history: PromptHistory) -> None:
    history.add("explain this")

    assert [history.older("explain") for _ in range(3)] == [
        "explain this",
        "explain that",
        None,
    ]


def test_an_empty_history_has_nothing_to_offer() -> None:
    history = PromptHistory()

    assert history.older("draft") is None
    assert history.newer() is None
