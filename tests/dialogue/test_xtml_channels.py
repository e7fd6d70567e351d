# SPDX-License-Identifier: Apache-2.0
"""Kimi K3's answers: thoughts, an answer and calls in tags of control tokens."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from tools_kit import TOOLS, WRITTEN

from splashpy.dialogue.reasoning import find_tags
from splashpy.dialogue.tokenizer import Tokenizer
from splashpy.dialogue.tools.calling import Calling
from splashpy.dialogue.tools.formats import named_format
from splashpy.dialogue.turn import CallPart, Turn
from splashpy.dialogue.xtml_channels import XtmlSplitter
from splashpy.protocol import Piece

CONTROLS = "<|open|> <|close|> <|sep|> <|end_of_msg|>"
CALLS = WRITTEN["kimi_k3"]
SAID = "Hm.<|close|>think<|sep|><|open|>response<|sep|>Yes é🙂."
END = "<|close|>response<|sep|><|close|>message<|sep|><|end_of_msg|>"


@pytest.fixture
def tokenizer(
    byte_definition: tokenizers.Tokenizer, write_model: Callable[..., Path]
) -> Tokenizer:
    byte_definition.add_special_tokens(CONTROLS.split())
    folder = write_model(
        byte_definition, CONTROLS, tokenizer_config={"eos_token": "<|end_of_msg|>"}
    )
    return Tokenizer.from_directory(folder)


def heard(
    tokenizer: Tokenizer, text: str, *, step: int = 1, inside: bool = True
) -> tuple[str, str, list[str], int]:
    """Reasoning, content, names of calls, and tokens of the reasoning."""
    tags = find_tags("", tokenizer.control_id)
    assert tags is not None
    turn = Turn(
        tokenizer,
        splitter=XtmlSplitter(tags.words_between, inside=inside),
        calling=Calling(tokenizer, named_format("kimi_k3"), TOOLS),
    )
    ids = tokenizer.encode(text)
    parts: list[Piece | CallPart] = []
    for at in range(0, len(ids), step):
        block = ids[at : at + step]
        parts += turn.feed(block, ["t"] * len(block)).parts
    parts += turn.finish("stop" if turn.stopped else "length")
    said = {"r": "", "c": "", "x": ""}
    for part in parts:
        if isinstance(part, Piece):
            said[part.channel] += part.text
    names = [part.name for part in parts if isinstance(part, CallPart) and part.name]
    assert turn.calls == len(names)
    return said["r"], said["c"], names, turn.reasoning_tokens


@pytest.mark.parametrize("step", [1, 3, 1000])
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (SAID + END, ("Hm.", "Yes é🙂.", [])),
        (SAID + "<|close|>response<|sep|>" + CALLS, ("Hm.", "Yes é🙂.", ["f", "g"])),
        ("Hm.<|close|>think<|sep|>" + CALLS + END, ("Hm.", "", ["f", "g"])),
        ("Hm." + CALLS, ("Hm.", "", ["f", "g"])),
        ("Hm.<|close|>thi", ("Hm.", "", [])),
        ("Hm.", ("Hm.", "", [])),
        (
            SAID + " <|sep|> <|open|>b<|sep|>",
            ("Hm.", "Yes é🙂. <|sep|> <|open|>b<|sep|>", []),
        ),
    ],
)
def test_channels_tell_thoughts_answer_and_calls_apart(
    tokenizer: Tokenizer, text: str, expected: Any, step: int
) -> None:
    found = heard(tokenizer, text, step=step)

    assert found == (*expected, len("Hm."))


@pytest.mark.parametrize("opener", ["", "<|open|>response<|sep|>"])
def test_an_answer_without_thoughts_is_content(
    tokenizer: Tokenizer, opener: str
) -> None:
    found = heard(tokenizer, f"{opener}Yes.{END}", inside=False)

    assert found == ("", "Yes.", [], 0)


def test_tags_within_an_argument_are_its_text(tokenizer: Tokenizer) -> None:
    value = "a <|close|>think<|sep|> b"
    text = CALLS.replace("a b", value)
    tags = find_tags("", tokenizer.control_id)
    assert tags is not None
    turn = Turn(
        tokenizer,
        splitter=XtmlSplitter(tags.words_between),
        calling=Calling(tokenizer, named_format("kimi_k3"), TOOLS),
    )
    ids = tokenizer.encode(text)

    parts = turn.feed(ids, ["t"] * len(ids)).parts

    arguments = "".join(p.arguments for p in parts if isinstance(p, CallPart))
    assert value in arguments
    assert turn.calls == 2
