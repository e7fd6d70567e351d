# SPDX-License-Identifier: Apache-2.0
"""Answers of several messages with headers: gpt-oss' channels, Muse's recipients."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from tools_kit import TOOLS

from splashpy.dialogue.sections import Begun, SectionSplitter, begun_by, find_sections
from splashpy.dialogue.tokenizer import Tokenizer
from splashpy.dialogue.tools.calling import Calling
from splashpy.dialogue.tools.formats import find_format
from splashpy.dialogue.turn import CallPart, Turn
from splashpy.protocol import Piece

HARMONY = "<|start|> <|channel|> <|message|> <|constrain|> <|end|> <|call|> <|return|>"
MUSE = "<|start|> <|message|> <|eom|> <|eot|>"
Make = Callable[[str, str], Tokenizer]


@pytest.fixture
def make(
    byte_definition: tokenizers.Tokenizer, write_model: Callable[..., Path]
) -> Make:
    def build(controls: str, end: str) -> Tokenizer:
        byte_definition.add_special_tokens(controls.split())
        folder = write_model(
            byte_definition,
            f"{controls} {{{{ tools }}}}",
            tokenizer_config={"eos_token": end},
        )
        return Tokenizer.from_directory(folder)

    return build


def heard(
    tokenizer: Tokenizer,
    text: str,
    *,
    step: int = 1,
    tools: bool = False,
    begun: Begun = "",
    reason: Any = "stop",
) -> tuple[str, str, list[tuple[str, str]]]:
    """Reasoning, content and calls of an answer."""
    sections = find_sections(tokenizer.control_id)
    assert sections is not None
    calling = None
    if tools:
        form = find_format("", lambda text: tokenizer.control_id(text) is not None)
        assert form is not None
        calling = Calling(tokenizer, form, TOOLS)
    splitter = SectionSplitter(sections, begun)
    turn = Turn(tokenizer, splitter=splitter, calling=calling)
    ids = tokenizer.encode(text)
    parts: list[Piece | CallPart] = []
    for at in range(0, len(ids), step):
        block = ids[at : at + step]
        parts += turn.feed(block, ["t"] * len(block)).parts
    parts += turn.finish(reason)
    said = {"r": "", "c": "", "x": ""}
    calls: list[tuple[str, str]] = []
    for part in parts:
        if isinstance(part, Piece):
            said[part.channel] += part.text
        elif part.name:
            calls.append((part.name, ""))
        else:
            name, arguments = calls[-1]
            calls[-1] = (name, arguments + part.arguments)
    return said["r"], said["c"], calls


@pytest.mark.parametrize("step", [1, 3, 100])
def test_channels_tell_reasoning_from_the_answer(make: Make, step: int) -> None:
    tokenizer = make(HARMONY, "<|return|>")
    text = (
        "<|channel|>analysis<|message|>Hm é🙂.<|end|><|start|>assistant"
        "<|channel|>commentary<|message|>I look.<|end|><|start|>assistant"
        "<|channel|>final<|message|>Paris.<|return|>"
    )

    assert heard(tokenizer, text, step=step) == ("Hm é🙂.", "I look.Paris.", [])


@pytest.mark.parametrize("step", [1, 3, 100])
@pytest.mark.parametrize(
    "header",
    [
        "<|channel|>commentary to=functions.f<|message|>",
        "<|channel|>commentary to=functions.f <|constrain|>json<|message|>",
        " to=functions.f<|channel|>commentary json<|message|>",
        " to=functions.f<|channel|>analysis <|constrain|>json<|message|>",
    ],
)
def test_a_call_is_read_whichever_way_its_header_is_written(
    make: Make, header: str, step: int
) -> None:
    tokenizer = make(HARMONY, "<|return|>")
    text = f"<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant{header}"
    text += '{"count": 1}<|call|><|start|>assistant' + header + '{"count": 2}<|call|>'

    reasoning, content, calls = heard(tokenizer, text, step=step, tools=True)

    assert (reasoning, content) == ("Hm.", "")
    assert calls == [("f", '{"count":1}'), ("f", '{"count":2}')]


def test_a_call_whose_arguments_break_off_is_text(make: Make) -> None:
    tokenizer = make(HARMONY, "<|return|>")
    text = '<|channel|>commentary to=functions.f<|message|>{"count": '

    _, content, _ = heard(tokenizer, text, tools=True, reason="length")

    assert content == text


def test_recipients_tell_reasoning_from_the_answer(make: Make) -> None:
    tokenizer = make(MUSE, "<|eot|>")
    text = (
        " to=self<|message|>Hm.<|eom|><|start|>assistant to=user<|message|>Yes.<|eot|>"
    )

    assert heard(tokenizer, text) == ("Hm.", "Yes.", [])


@pytest.mark.parametrize("text", ["Hello to you.", "assist", "", '{"a": 1}'])
def test_an_answer_without_a_header_is_content(make: Make, text: str) -> None:
    assert heard(make(HARMONY, "<|return|>"), text) == ("", text, [])


def test_a_header_that_is_cut_is_no_text(make: Make) -> None:
    tokenizer = make(HARMONY, "<|return|>")
    text = "<|channel|>analysis<|message|>Hm.<|end|><|start|>assist"

    assert heard(tokenizer, text, reason="length") == ("Hm.", "", [])


def test_an_answer_that_was_begun_goes_on_in_its_message(make: Make) -> None:
    tokenizer = make(HARMONY, "<|return|>")

    assert heard(tokenizer, " to=the point.<|return|>", begun="text") == (
        "",
        " to=the point.",
        [],
    )


@pytest.mark.parametrize(
    ("prompt", "begun"),
    [
        ("<|start|>user<|message|>hi<|eom|><|start|>assistant", ""),
        ("<|start|>user<|message|>hi<|eom|>", ""),
        ("<|start|>assistant to=self<|message|>", "reasoning"),
        ("<|start|>assistant to=user<|message|>The capital", "text"),
    ],
)
def test_where_a_prompt_ends_tells_where_the_answer_begins(
    make: Make, prompt: str, begun: str
) -> None:
    sections = find_sections(make(MUSE, "<|eot|>").control_id)

    assert sections is not None
    assert begun_by(sections, prompt) == begun


def test_reasoning_that_a_prompt_began_is_reasoning(make: Make) -> None:
    text = "Hm.<|eom|><|start|>assistant to=user<|message|>Yes.<|eot|>"

    found = heard(make(MUSE, "<|eot|>"), text, begun="reasoning")

    assert found == ("Hm.", "Yes.", [])


def test_a_model_without_headers_has_none(byte_tokenizer: Tokenizer) -> None:
    assert find_sections(byte_tokenizer.control_id) is None
