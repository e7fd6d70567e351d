# SPDX-License-Identifier: Apache-2.0
"""Anthropic Messages: bodies agents send, events they read."""

from __future__ import annotations

import json
from typing import Any

import pytest
from scripted_engine import Said, Script
from server_kit import Reply, Running

from splashpy.errors import ModelResultError

CALL = (
    "<tool_call>\n<function=look>\n<parameter=where>\nhere\n</parameter>\n"
    "</function>\n</tool_call>"
)
TOOLS = [
    {
        "name": "look",
        "description": "Look somewhere.",
        "input_schema": {
            "type": "object",
            "properties": {"where": {"type": "string"}},
        },
        "cache_control": {"type": "ephemeral"},
    },
    {"type": "web_search_20250305", "name": "web_search", "max_uses": 5},
]
THINK = {"type": "adaptive"}


def ask(server: Running, **fields: Any) -> Reply:
    body = {
        "model": "local",
        "max_tokens": 2000,
        "messages": [{"role": "user", "content": "hi"}],
        **fields,
    }
    return server.post("/v1/messages?beta=true", body)


def test_an_answer_has_blocks_in_the_order_they_were_written(
    server: Running, script: Script
) -> None:
    script.say(f"Need to look.\n</think>\n\nI look.\n{CALL}<|im_end|>", cached=4)

    answer = ask(server, tools=TOOLS, thinking=THINK).json

    assert answer["type"] == "message"
    assert answer["id"].startswith("msg_")
    assert answer["stop_reason"] == "tool_use"
    thinking, text, call = answer["content"]
    assert thinking["thinking"] == "Need to look.\n"
    assert thinking["signature"]
    assert text == {"type": "text", "text": "I look."}
    assert call["id"].startswith("toolu_")
    assert (call["name"], call["input"]) == ("look", {"where": "here"})
    usage = answer["usage"]
    assert usage["cache_read_input_tokens"] == 4
    assert usage["input_tokens"] + 4 == len(script.requests[0].token_ids)
    assert usage["cache_creation_input_tokens"] == 0


def test_a_stream_is_the_events_agents_expect(server: Running, script: Script) -> None:
    script.say(f"Look.</think>I look.{CALL}\n{CALL}<|im_end|>", cached=4)

    reply = ask(server, tools=TOOLS, thinking=THINK, stream=True)

    events = reply.events
    names = [
        line.removeprefix("event: ")
        for line in reply.body.decode().split("\n")
        if line.startswith("event: ")
    ]
    assert names == [event["type"] for event in events]
    assert names[0] == "message_start"
    assert events[0]["message"]["usage"]["cache_read_input_tokens"] == 4
    assert events[0]["message"]["content"] == []
    starts = [e for e in events if e["type"] == "content_block_start"]
    assert [e["index"] for e in starts] == [0, 1, 2, 3]
    kinds = [e["content_block"]["type"] for e in starts]
    assert kinds == ["thinking", "text", "tool_use", "tool_use"]
    open_block = None
    texts: dict[int, str] = {}
    for event in events:
        if event["type"] == "content_block_start":
            assert open_block is None
            open_block = event["index"]
        elif event["type"] == "content_block_delta":
            assert event["index"] == open_block
            delta = event["delta"]
            value = delta[next(key for key in delta if key != "type")]
            if delta["type"] != "signature_delta":
                texts[open_block] = texts.get(open_block, "") + value
            else:
                assert value
        elif event["type"] == "content_block_stop":
            open_block = None
    assert texts[0] == "Look."
    assert texts[1] == "I look."
    assert json.loads(texts[2]) == json.loads(texts[3]) == {"where": "here"}
    signatures = [
        number
        for number, e in enumerate(events)
        if e.get("delta", {}).get("type") == "signature_delta"
    ]
    assert events[signatures[0] + 1] == {"type": "content_block_stop", "index": 0}
    assert names[-2:] == ["message_delta", "message_stop"]
    assert events[-2]["delta"] == {"stop_reason": "tool_use", "stop_sequence": None}
    assert events[-2]["usage"]["output_tokens"] > 0


def test_an_empty_answer_still_has_a_block(server: Running, script: Script) -> None:
    script.say("<|im_end|>")

    assert ask(server).json["content"] == [{"type": "text", "text": ""}]
    events = ask(server, stream=True).events
    assert [e["type"] for e in events if "block" in e["type"]] == [
        "content_block_start",
        "content_block_stop",
    ]


def test_a_stop_sequence_is_named(server: Running, script: Script) -> None:
    script.say("one two three<|im_end|>")

    answer = ask(server, stop_sequences=["two", "  "]).json

    assert answer["content"] == [{"type": "text", "text": "one "}]
    assert answer["stop_reason"] == "stop_sequence"
    assert answer["stop_sequence"] == "two"


def test_without_thinking_there_is_none(server: Running, script: Script) -> None:
    ask(server)
    ask(server, thinking={"type": "disabled"})
    ask(server, thinking={"type": "enabled", "budget_tokens": 1024})

    first, second, third = script.requests
    assert first.token_ids == second.token_ids
    assert first.token_ids != third.token_ids


def test_what_an_agent_sends_is_taken(server: Running, script: Script) -> None:
    history = [
        {"role": "user", "content": [{"type": "text", "text": "list the files"}]},
        {"role": "system", "content": "Be brief."},
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "I list.", "signature": "c3Bs"},
                {"type": "redacted_thinking", "data": "…"},
                {"type": "text", "text": "Listing."},
                {"type": "tool_use", "id": "toolu_1", "name": "look", "input": {}},
            ],
        },
        {
            "role": "user",
            "content": [
                {
                    "type": "tool_result",
                    "tool_use_id": "toolu_1",
                    "content": [{"type": "text", "text": "denied"}],
                    "is_error": True,
                    "cache_control": {"type": "ephemeral"},
                },
                {"type": "text", "text": "and now?"},
                {"type": "novelty", "text": "!"},
                {"type": "novelty"},
            ],
        },
    ]

    reply = ask(
        server,
        messages=history,
        system=[
            {"type": "text", "text": "x-anthropic-billing-header: cch=abcde;"},
            {"type": "text", "text": "You are an agent."},
            {"type": "text", "text": "Work.", "cache_control": {"type": "ephemeral"}},
        ],
        tools=TOOLS,
        metadata={"user_id": '{"a": 1}'},
        max_tokens=32000,
        thinking=THINK,
        context_management={
            "edits": [{"type": "clear_thinking_20251015", "keep": "all"}]
        },
        output_config={"effort": "high"},
        service_tier="auto",
    )

    assert reply.status == 200
    tokens = list(script.requests[-1].token_ids)
    decoded = server.post("/detokenize", {"tokens": tokens}).json["content"]
    assert "You are an agent.\n\nWork." in decoded
    assert "billing" not in decoded
    assert "web_search" not in decoded
    assert "I list." in decoded
    assert "Tool execution failed:\ndenied" in decoded
    assert decoded.index("denied") < decoded.index("and now?!")
    assert "Be brief." in decoded


@pytest.mark.parametrize(
    ("turns", "kept"), [(0, ""), (1, "c"), (2, "bc"), (9, "abc"), (None, "abc")]
)
def test_thoughts_of_the_latest_turns_may_be_all_that_stays(
    server: Running, script: Script, turns: int | None, kept: str
) -> None:
    history: list[dict[str, Any]] = []
    for name in "abc":
        thought = {"type": "thinking", "thinking": f"thought-{name}", "signature": ""}
        blocks = [thought, {"type": "text", "text": "Yes."}]
        history += [{"role": "user", "content": "?"}]
        history += [{"role": "assistant", "content": blocks}]
    history += [{"role": "user", "content": "?"}]
    keep = "all" if turns is None else {"type": "thinking_turns", "value": turns}
    edit = {"type": "clear_thinking_20251015", "keep": keep}

    ask(server, messages=history, context_management={"edits": [edit]})

    tokens = list(script.requests[-1].token_ids)
    decoded = server.post("/detokenize", {"tokens": tokens}).json["content"]
    assert [name for name in "abc" if f"thought-{name}" in decoded] == list(kept)


def test_a_header_that_changes_with_every_request_changes_no_prompt(
    server: Running, script: Script
) -> None:
    for number in range(2):
        header = f"x-anthropic-billing-header: v=1; cch={number};"
        system = [{"type": "text", "text": header}, {"type": "text", "text": "Work."}]
        ask(server, system=system)

    assert script.requests[0].token_ids == script.requests[1].token_ids


def test_a_last_turn_of_the_assistant_is_continued(
    server: Running, script: Script
) -> None:
    script.say(" Paris.<|im_end|>")
    begun = [
        {"role": "user", "content": "capital?"},
        {"role": "assistant", "content": "It is"},
    ]

    assert ask(server, messages=begun).json["content"][0]["text"] == " Paris."


@pytest.mark.parametrize("kind", ["image", "document"])
def test_what_cannot_be_read_is_refused_by_name(server: Running, kind: str) -> None:
    content = [{"type": kind, "source": {"type": "base64", "data": ""}}]

    reply = ask(server, messages=[{"role": "user", "content": content}])

    assert reply.status == 400
    assert reply.json["type"] == "error"
    assert reply.json["error"]["type"] == "invalid_request_error"
    assert kind in reply.json["error"]["message"]
    assert reply.json["request_id"] == reply.headers["request-id"]


def test_counting_is_what_generating_reads(server: Running, script: Script) -> None:
    body = {"messages": [{"role": "user", "content": "hi"}], "tools": TOOLS}

    count = server.post("/v1/messages/count_tokens?beta=true", body)
    ask(server, **body)

    assert count.json == {"input_tokens": len(script.requests[0].token_ids)}


def test_a_full_queue_is_an_overload(serve: Any, script: Script) -> None:
    server = serve(max_queue=0)
    server.endpoint.active = 1

    reply = ask(server)

    server.endpoint.active = 0
    assert reply.status == 529
    assert reply.json["error"]["type"] == "overloaded_error"
    assert reply.headers["retry-after"] == "1"


def test_an_error_in_the_middle_is_an_event(server: Running, script: Script) -> None:
    script.answers = [Said(("begin", ModelResultError("not a number")))]

    reply = ask(server, stream=True)
    last = reply.events[-1]

    assert last["type"] == "error"
    assert last["error"]["type"] == "api_error"
    assert last["request_id"] == reply.headers["request-id"]


def test_a_call_may_be_forced_by_name(server: Running, script: Script) -> None:
    script.say(CALL.removeprefix("<tool_call>\n<function=look>\n") + "<|im_end|>")

    choice = {"type": "tool", "name": "look", "disable_parallel_tool_use": True}
    answer = ask(server, tools=TOOLS, tool_choice=choice).json

    assert answer["content"][0]["input"] == {"where": "here"}
