# SPDX-License-Identifier: Apache-2.0
"""Reasoning and content told apart, however the text arrives."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from splashpy.dialogue.channels import ChannelSplitter
from splashpy.dialogue.reasoning import ReasoningTags, find_tags, split_reasoning

WRITTEN = ReasoningTags("<think>", "</think>")
TOKENS = ReasoningTags("<think>", "</think>", 8, 9)


def split(
    pieces: list[str], tags: ReasoningTags | None = WRITTEN, *, inside: bool = False
) -> tuple[str, str]:
    """Reasoning and content of an answer given in pieces."""
    splitter = ChannelSplitter(tags, inside=inside)
    runs = [run for piece in pieces for run in splitter.feed(piece)]
    runs += splitter.flush()
    reasoning = "".join(text for text, channel in runs if channel == "r")
    return reasoning, "".join(text for text, channel in runs if channel == "c")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("<think>\nwhy\n</think>\n\nbecause", ("why\n", "because")),
        ("\n <think>why</think>because\n", ("why", "because\n")),
        ("<think>\n\n</think>\n\nyes", ("", "yes")),
        ("no tags", ("", "no tags")),
        ("  indented", ("", "  indented")),
        ("say <think> and </think>", ("", "say <think> and </think>")),
        ("<think>a</think>b<think>c</think>", ("a", "b<think>c</think>")),
        ("<think>cut off", ("cut off", "")),
        ("<think>cut </thi", ("cut </thi", "")),
        ("<thi", ("", "<thi")),
        (" \n", ("", " \n")),
        ("", ("", "")),
    ],
)
def test_tags_written_in_characters(text: str, expected: tuple[str, str]) -> None:
    assert split([text]) == expected
    assert split(list(text)) == expected


GEMMA = ReasoningTags("<|channel>", "<channel|>", 8, 9)


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ("thought\nwhy\n", "because", ("why\n", "because")),
        ("thought\n", "\nyes", ("", "yes")),
        ("thought", "yes", ("", "yes")),
        ("though I", "yes", ("though I", "yes")),
        ("tho", "yes", ("tho", "yes")),
        ("", "yes", ("", "yes")),
    ],
)
@pytest.mark.parametrize("by_token", [True, False])
def test_the_name_of_a_channel_belongs_to_its_tag(
    before: str, after: str, expected: tuple[str, str], *, by_token: bool
) -> None:
    if not by_token:
        written = ReasoningTags(GEMMA.open, GEMMA.close)
        text = f"{GEMMA.open}{before}{GEMMA.close}{after}"
        assert split([text], written) == split(list(text), written) == expected
        return
    splitter = ChannelSplitter(GEMMA)
    runs = splitter.switch(8)
    for character in before:
        runs += splitter.feed(character)
    runs += [*splitter.switch(9), *splitter.feed(after), *splitter.flush()]
    assert "".join(text for text, channel in runs if channel == "r") == expected[0]
    assert "".join(text for text, channel in runs if channel == "c") == expected[1]


def test_gemma_s_tags_are_known_by_its_template_and_are_not_harmony_s() -> None:
    ids = {"<|channel>": 8, "<channel|>": 9, "<|channel|>": 7}
    assert find_tags("{{ '<|channel>thought' }}", ids.get) == GEMMA
    assert find_tags("", ids.get) == GEMMA
    assert find_tags("{{ '<|channel|>analysis' }}", {"<|channel|>": 7}.get) is None
    past = "<|channel>thought\nwhy\n<channel|>yes"
    assert split_reasoning(past, GEMMA) == ("why", "yes")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("why</think>\n\nyes", ("why", "yes")),
        ("<think>\nwhy</think>yes", ("why", "yes")),
        ("why <think> why</think>", ("why <think> why", "")),
        ("never closed", ("never closed", "")),
        ("<thi", ("<thi", "")),
    ],
)
def test_an_answer_that_begins_inside_reasoning(
    text: str, expected: tuple[str, str]
) -> None:
    assert split([text], inside=True) == expected
    assert split(list(text), inside=True) == expected


@given(
    pieces=st.lists(st.sampled_from(["<think>", "</think>", "<th", "ink>", "a", "\n"]))
)
@pytest.mark.parametrize("inside", [True, False])
def test_how_the_text_was_cut_changes_nothing(pieces: list[str], inside: bool) -> None:
    text = "".join(pieces)

    assert split(pieces, inside=inside) == split([text], inside=inside)
    assert split(list(text), inside=inside) == split([text], inside=inside)


@given(text=st.text(max_size=20))
def test_a_model_without_tags_has_content_only(text: str) -> None:
    answer = f"<think>{text}</think>"

    assert split(list(answer), None, inside=True) == ("", answer)


def test_only_a_possible_tag_is_held_back() -> None:
    splitter = ChannelSplitter(WRITTEN, inside=True)

    assert splitter.feed("abc </") == [("abc ", "r")]
    assert splitter.feed("b>") == [("</b>", "r")]


def test_tags_that_are_tokens_switch_at_any_place() -> None:
    splitter = ChannelSplitter(TOKENS)

    assert splitter.feed(" ") == []
    assert splitter.switch(8) == []
    assert splitter.inside
    assert splitter.feed("\nwhy </think>") == [("why </think>", "r")]
    assert splitter.switch(9) == []
    assert splitter.feed("\n") == []
    assert splitter.feed("\nyes <think>") == [("yes <think>", "c")]
    assert splitter.switch(8) == []
    assert splitter.feed("more") == [("more", "r")]


def test_white_space_before_a_closing_token_is_kept() -> None:
    splitter = ChannelSplitter(TOKENS, inside=True)

    assert splitter.feed(" ") == []
    assert splitter.switch(9) == [(" ", "r")]


def test_only_the_tag_tokens_are_tags() -> None:
    assert ChannelSplitter(TOKENS).is_tag(8)
    assert not ChannelSplitter(TOKENS).is_tag(7)
    assert not ChannelSplitter(WRITTEN).is_tag(8)
    assert not ChannelSplitter(None).is_tag(8)


def test_tags_come_from_the_template_or_the_vocabulary() -> None:
    ids = {"<think>": 8, "</think>": 9, "[THINK]": 3}

    assert find_tags("", {}.get) is None
    assert find_tags("{{ '[THINK]' }}", ids.get) == ReasoningTags("[THINK]", "[/THINK]")
    assert find_tags("", ids.get) == TOKENS
    assert find_tags("… </think> …", {}.get) == WRITTEN


@pytest.mark.parametrize(
    ("content", "parts"),
    [
        ("<think>\nwhy\n</think>\n\nyes", ("why", "yes")),
        ("\n<think></think>yes", ("", "yes")),
        ("yes <think>why</think>", None),
        ("<think>why", None),
        ("why</think>yes", None),
    ],
)
def test_reasoning_at_the_beginning_of_a_message(
    content: str, parts: tuple[str, str] | None
) -> None:
    assert split_reasoning(content, WRITTEN) == parts
