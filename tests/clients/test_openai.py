# SPDX-License-Identifier: Apache-2.0
"""OpenAI's SDK for Python in an environment of its own."""

from __future__ import annotations

from collections.abc import Callable
from itertools import groupby
from typing import Any

from clients.conversation import call
from scripted_engine import Said, Script
from server_kit import THOUGHT, Running

Ask = Callable[..., Any]


def test_lists_the_models(ask: Ask, server: Running) -> None:
    assert ask("models", server.url) == ["maker/tiny", "tiny"]


def test_chats(ask: Ask, server: Running, script: Script) -> None:
    script.say("Hm.</think>Paris.<|im_end|>")

    message = ask("chat", server.url)

    assert message["content"] == "Paris."
    assert message["reasoning_content"] == "Hm."


def test_streams_a_chat_with_usage_at_its_end(
    ask: Ask, server: Running, script: Script
) -> None:
    script.say("</think>Paris.<|im_end|>")

    found = ask("stream", server.url)

    assert found == {"said": "Paris.", "choices": 0, "usage": 8}


def test_calls_a_tool_and_reads_its_result(
    ask: Ask, server: Running, script: Script, prompts: Callable[[], list[str]]
) -> None:
    script.answers = [call("look", where="here"), Said(("</think>Found.<|im_end|>",))]

    assert ask("tools", server.url) == ['{"where":"here"}', "Found."]
    assert "a treasure" in prompts()[1]


def test_reads_an_answer_into_a_class(
    ask: Ask, server: Running, script: Script
) -> None:
    script.say('</think>{"name":"Rex","age":3}<|im_end|>')

    assert ask("parsed", server.url) == {"name": "Rex", "age": 3}
    assert script.requests[0].grammar is not None


def test_fills_a_gap(ask: Ask, server: Running, script: Script) -> None:
    script.say("x + 1<|im_end|>")

    assert ask("completion", server.url) == "x + 1"


def test_creates_a_response(ask: Ask, server: Running, script: Script) -> None:
    script.say("Hm.</think>Paris.<|im_end|>")

    assert ask("response", server.url) == ["completed", "Paris."]


def test_streams_a_response_as_the_events_it_expects(
    ask: Ask, server: Running, script: Script
) -> None:
    script.say("Hm.</think>Paris.<|im_end|>")

    kinds = [kind.removeprefix("response.") for kind in ask("events", server.url)]

    assert [kind for kind, _ in groupby(kinds)] == [
        "created",
        "in_progress",
        *THOUGHT,
        "output_item.added",
        "content_part.added",
        "output_text.delta",
        "output_text.done",
        "content_part.done",
        "output_item.done",
        "completed",
    ]


def test_goes_on_from_an_earlier_response_and_reads_that_one_is_unknown(
    ask: Ask, server: Running, prompts: Callable[[], list[str]]
) -> None:
    assert ask("conversation", server.url) == "previous_response_not_found"
    assert all(word in prompts()[2] for word in ("one", "two", "three"))


def test_reads_that_a_prompt_is_too_long(ask: Ask, server: Running) -> None:
    assert ask("too_long", server.url) == "context_length_exceeded"


def test_reads_that_a_key_is_wrong(ask: Ask, locked: Running) -> None:
    assert ask("wrong_key", locked.url) == "invalid_api_key"
