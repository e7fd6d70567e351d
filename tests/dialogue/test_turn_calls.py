# SPDX-License-Identifier: Apache-2.0
"""Tool calls within the whole text path of an answer."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from splashpy.dialogue.channels import ChannelSplitter
from splashpy.dialogue.reasoning import find_tags
from splashpy.dialogue.tokenizer import Tokenizer
from splashpy.dialogue.tools.calling import Calling, Choice
from splashpy.dialogue.tools.formats import named_format
from splashpy.dialogue.turn import CallPart, Turn
from splashpy.protocol import FinishReason, Piece

TOOL = {"type": "function", "function": {"name": "f", "parameters": {}}}
CALL = "<tool_call>\n<function=f>\n<parameter=a>\n1\n</parameter>\n</function>\n"
CLOSED = CALL + "</tool_call>"


def turn_of(
    tokenizer: Tokenizer,
    *,
    stops: Sequence[str] = (),
    inside: bool = False,
    choice: Choice | None = None,
) -> Turn:
    calling = Calling(tokenizer, named_format("qwen3_coder"), [TOOL], choice)
    tags = find_tags("", tokenizer.control_id)
    splitter = ChannelSplitter(tags, inside=inside)
    return Turn(tokenizer, splitter=splitter, stops=stops, calling=calling)


def run(
    turn: Turn, tokenizer: Tokenizer, text: str, reason: FinishReason = "stop"
) -> list[Piece | CallPart]:
    token_ids = tokenizer.encode(text)
    delta = turn.feed(token_ids, ["t"] * len(token_ids))
    return [*delta.parts, *turn.finish("stop" if delta.stopped else reason)]


def told(parts: Sequence[Piece | CallPart]) -> list[str]:
    """Texts, names, arguments and ends in order; markup left out."""
    found: list[str] = []
    for part in parts:
        if isinstance(part, CallPart):
            found.append(part.name or part.arguments or part.ended)
        elif part.channel != "x":
            found.append(part.text)
    return found


def test_text_and_calls_come_in_the_order_they_were_written(
    byte_tokenizer: Tokenizer,
) -> None:
    turn = turn_of(byte_tokenizer)

    parts = run(turn, byte_tokenizer, f"Look.\n{CLOSED}\n{CLOSED} Done.")

    call = ["f", '{"a":1', "}", "whole"]
    assert told(parts) == ["Look.", *call, *call, " Done."]
    assert turn.calls == 2


def test_a_stop_string_inside_a_call_stops_nothing(byte_tokenizer: Tokenizer) -> None:
    turn = turn_of(byte_tokenizer, stops=["parameter", "end"])

    parts = run(turn, byte_tokenizer, f"a{CLOSED}b end c")

    assert told(parts)[0] == "a"
    assert told(parts)[-1] == "b "
    assert turn.stop_text == "end"


def test_text_held_for_a_stop_string_is_released_when_the_answer_ends(
    byte_tokenizer: Tokenizer,
) -> None:
    turn = turn_of(byte_tokenizer, stops=["abcd"])

    parts = run(turn, byte_tokenizer, "say abc<|im_end|>")

    assert "".join(told(parts)) == "say abc"
    assert turn.stop_text == ""


def test_one_call_ends_an_answer_that_may_hold_one_only(
    byte_tokenizer: Tokenizer,
) -> None:
    turn = turn_of(byte_tokenizer, choice=Choice(single=True))

    parts = run(turn, byte_tokenizer, f"{CLOSED}\n{CLOSED}")

    assert turn.calls == 1
    assert turn.stopped
    assert told(parts)[-1] == "whole"


def test_an_answer_goes_on_from_the_text_it_was_made_to_begin_with(
    byte_tokenizer: Tokenizer,
) -> None:
    forced = Choice(forced="<tool_call>\n<function=f>\n")
    turn = turn_of(byte_tokenizer, choice=forced)
    rest = CLOSED.removeprefix("<tool_call>\n<function=f>\n")

    parts = run(turn, byte_tokenizer, rest)

    assert told(parts) == ["f", '{"a":1', "}", "whole"]


@pytest.mark.parametrize(
    ("reasoning", "calls"),
    [
        (f"I should call it.\n\n{CLOSED}", 1),
        (f"{CLOSED}\n{CLOSED}\n", 2),
        (f"I could write {CLOSED}, but will not.", 0),
        ("I could write <tool_call> here", 0),
        ("nothing to call", 0),
        (CLOSED.replace("=f>", "=unknown>"), 0),
    ],
)
def test_a_call_at_the_end_of_reasoning_without_an_answer_is_a_call(
    byte_tokenizer: Tokenizer, reasoning: str, calls: int
) -> None:
    turn = turn_of(byte_tokenizer, inside=True)

    parts = run(turn, byte_tokenizer, reasoning)

    assert turn.calls == calls
    assert (
        sum(isinstance(part, CallPart) and bool(part.name) for part in parts) == calls
    )


def test_a_call_in_reasoning_that_was_followed_by_an_answer_is_none(
    byte_tokenizer: Tokenizer,
) -> None:
    turn = turn_of(byte_tokenizer, inside=True)

    parts = run(turn, byte_tokenizer, f"{CLOSED}</think>No need.")

    assert turn.calls == 0
    assert told(parts)[-1] == "No need."


def test_a_call_the_budget_cut_is_broken_and_given_back(
    byte_tokenizer: Tokenizer,
) -> None:
    turn = turn_of(byte_tokenizer)

    parts = run(turn, byte_tokenizer, CALL[:50], "length")

    assert told(parts)[-2:] == ["broken", CALL[:50]]
    assert turn.calls == 0
