# SPDX-License-Identifier: Apache-2.0
"""Chat Completions: tool calls."""

from __future__ import annotations

from typing import Any

import pytest
from chat_kit import CALL, HI, TOOLS, chat, deltas
from scripted_engine import Said, Script
from server_kit import Running


def test_tool_calls_are_streamed_one_element_at_a_time(
    server: Running, script: Script
) -> None:
    script.say(f"</think>Let me look.\n{CALL}\n{CALL}<|im_end|>")

    reply = chat(server, stream=True, tools=TOOLS)

    assert "".join(d.get("content", "") for d in deltas(reply)) == "Let me look."
    pieces = [d["tool_calls"] for d in deltas(reply) if "tool_calls" in d]
    assert all(len(piece) == 1 for piece in pieces)
    assert [p[0]["index"] for p in pieces] == sorted(p[0]["index"] for p in pieces)
    for index in (0, 1):
        mine = [p[0] for p in pieces if p[0]["index"] == index]
        assert mine[0]["id"].startswith("call_")
        assert mine[0]["type"] == "function"
        assert mine[0]["function"] == {"name": "look", "arguments": ""}
        assert all("id" not in later for later in mine[1:])
        text = "".join(later["function"]["arguments"] for later in mine)
        assert text == '{"where":"here","depth":2}'
    assert reply.events[-2]["choices"][0]["finish_reason"] == "tool_calls"


def test_an_answer_of_calls_only_has_no_content(
    server: Running, script: Script
) -> None:
    script.say(f"</think>\n\n{CALL}<|im_end|>")

    (choice,) = chat(server, tools=TOOLS).json["choices"]

    assert choice["message"]["content"] is None
    (call,) = choice["message"]["tool_calls"]
    assert call["function"]["arguments"] == '{"where":"here","depth":2}'
    assert choice["finish_reason"] == "tool_calls"


def test_a_call_cut_by_the_budget_is_text_in_both_forms(
    server: Running, script: Script
) -> None:
    script.say(f"</think>{CALL}")

    whole = chat(server, tools=TOOLS, max_tokens=60).json["choices"][0]
    streamed = chat(server, tools=TOOLS, max_tokens=60, stream=True)

    assert whole["finish_reason"] == "length"
    assert "tool_calls" not in whole["message"]
    text = "".join(d.get("content", "") for d in deltas(streamed))
    assert text == whole["message"]["content"]
    assert CALL.startswith(text)


def test_parallel_calls_can_be_forbidden(server: Running, script: Script) -> None:
    script.say(f"</think>{CALL}\n{CALL}<|im_end|>")

    reply = chat(server, tools=TOOLS, parallel_tool_calls=False)

    assert len(reply.json["choices"][0]["message"]["tool_calls"]) == 1


@pytest.mark.parametrize(
    "choice", ["required", {"type": "function", "function": {"name": "look"}}]
)
def test_a_required_call_is_begun_for_the_model(
    server: Running, script: Script, choice: Any
) -> None:
    script.answers = [
        Said((CALL.removeprefix("<tool_call>\n<function=look>\n"),)),
        Said((f"Hm.</think>\n\n{CALL}<|im_end|>",)),
    ]

    for effort in ("none", None):
        reply = chat(server, tools=TOOLS, tool_choice=choice, reasoning_effort=effort)

        message = reply.json["choices"][0]["message"]
        (call,) = message["tool_calls"]
        assert call["function"]["name"] == "look"
        assert message.get("reasoning_content", "") == ("" if effort else "Hm.")


def test_a_call_comes_back_in_the_words_it_was_made_in(
    server: Running, script: Script
) -> None:
    script.say(f"Look.</think>I look.\n{CALL}<|im_end|>")
    message = chat(server, tools=TOOLS).json["choices"][0]["message"]
    result = {"role": "tool", "tool_call_id": message["tool_calls"][0]["id"]}

    history = [*HI, message, {**result, "content": "a treasure"}]
    body = {"messages": history, "tools": TOOLS}
    rendered = server.post("/apply-template", body).json["prompt"]

    assert f"<think>\nLook.\n</think>\n\nI look.{CALL}<|im_end|>" in rendered


def test_a_forbidden_call_is_shown_but_its_marker_is_banned(
    server: Running, script: Script
) -> None:
    chat(server, tools=TOOLS, tool_choice="none")
    chat(server, tools=TOOLS)

    banned, free = script.requests
    assert banned.token_ids == free.token_ids
    assert [bias for _, bias in banned.sampling.logit_bias] == [-1e9]


def test_no_tools_and_an_empty_list_are_the_same_prompt(
    server: Running, script: Script
) -> None:
    chat(server)
    chat(server, tools=[])

    assert script.requests[0].token_ids == script.requests[1].token_ids
