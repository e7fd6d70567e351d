# SPDX-License-Identifier: Apache-2.0
"""Chat Completions: the bytes clients read."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from chat_kit import HI, TOOLS, chat, deltas
from scripted_engine import Said, Script
from server_kit import PATIENCE, Running

from splashpy.errors import ModelResultError


def test_an_answer_carries_reasoning_text_and_counts(
    server: Running, script: Script
) -> None:
    script.say("Think first.\n</think>\n\nParis.<|im_end|>", cached=5)

    reply = chat(server)

    assert reply.status == 200
    assert reply.headers["x-request-id"].startswith("req_")
    answer = reply.json
    assert answer["object"] == "chat.completion"
    assert answer["model"] == "local"
    assert answer["created"] == 1_795_969_286
    (choice,) = answer["choices"]
    assert choice["message"]["content"] == "Paris."
    assert choice["message"]["reasoning_content"] == "Think first.\n"
    assert choice["finish_reason"] == "stop"
    assert "tool_calls" not in choice["message"]
    usage = answer["usage"]
    prompt = len(script.requests[0].token_ids)
    assert usage["prompt_tokens"] == prompt
    assert usage["prompt_tokens_details"] == {"cached_tokens": 5}
    assert usage["completion_tokens_details"]["reasoning_tokens"] == 13
    assert usage["completion_tokens"] == 13 + 1 + 8 + 1
    assert usage["total_tokens"] == prompt + usage["completion_tokens"]
    timings = answer["timings"]
    assert timings["cache_n"] + timings["prompt_n"] == prompt
    assert timings["draft_n_accepted"] <= timings["draft_n"]


def test_a_stream_begins_with_the_role_and_ends_with_done(
    server: Running, script: Script
) -> None:
    script.say("Hm.</think>Pa", "ris.<|im_end|>")

    reply = chat(server, stream=True)

    assert reply.headers["content-type"] == "text/event-stream; charset=utf-8"
    assert reply.headers["cache-control"] == "no-cache"
    assert "content-length" not in reply.headers
    found = deltas(reply)
    assert found[0] == {"role": "assistant", "content": ""}
    assert found[-1] == {}
    assert all(len(delta) == 1 for delta in found[1:-1])
    said = "".join(delta.get("content", "") for delta in found)
    thought = "".join(delta.get("reasoning_content", "") for delta in found)
    assert (thought, said) == ("Hm.", "Paris.")
    assert reply.events[-2]["choices"][0]["finish_reason"] == "stop"
    assert reply.events[-1] == "[DONE]"
    for chunk in reply.events[:-1]:
        assert chunk["object"] == "chat.completion.chunk"
        assert isinstance(chunk["created"], int)
        assert chunk["choices"][0]["index"] == 0


@pytest.mark.parametrize("asked", [True, False])
def test_a_chunk_of_counts_comes_only_where_it_was_asked_for(
    server: Running, *, asked: bool
) -> None:
    options = {"include_usage": True} if asked else None

    events = chat(server, stream=True, stream_options=options).events

    empty = [e for e in events if isinstance(e, dict) and not e["choices"]]
    assert len(empty) == asked
    if asked:
        assert events[-2] == empty[0]
        assert empty[0]["usage"]["completion_tokens"] > 0


def test_a_stop_string_ends_the_content_before_it(
    server: Running, script: Script
) -> None:
    script.say("</think>alpha beta gamma delta<|im_end|>", block=7)

    streamed = chat(server, stop=["beta gamma"], stream=True)
    whole = chat(server, stop="beta gamma").json["choices"][0]

    text = "".join(d.get("content", "") for d in deltas(streamed))
    assert text == whole["message"]["content"] == "alpha "
    assert whole["finish_reason"] == "stop"


def test_a_character_in_pieces_is_never_shown_in_part(
    server: Running, script: Script
) -> None:
    script.say("</think>Příliš 🙂 日本 e\u0301<|im_end|>", block=1)

    reply = chat(server, stream=True)

    pieces = [d["content"] for d in deltas(reply) if "content" in d]
    assert "".join(pieces) == "Příliš 🙂 日本 e\u0301"
    assert not any("\ufffd" in piece for piece in pieces)


def test_a_budget_is_a_ceiling_not_a_reservation(
    server: Running, script: Script
) -> None:
    reply = chat(server, max_tokens=1_000_000)

    assert reply.status == 200
    assert script.requests[0].max_new_tokens == 1_000_000  # the engine clamps it


def test_several_answers_count_their_prompt_once(
    server: Running, script: Script
) -> None:
    answer = chat(server, n=3, seed=7).json

    assert [choice["index"] for choice in answer["choices"]] == [0, 1, 2]
    assert [request.seed for request in script.requests] == [7, 8, 9]
    assert answer["usage"]["prompt_tokens"] == len(script.requests[0].token_ids)
    assert answer["usage"]["completion_tokens"] == 3 * 3


def test_reasoning_can_be_hidden_or_left_in_the_text(
    server: Running, script: Script
) -> None:
    script.say("Hm.</think>Yes.<|im_end|>")

    hidden = chat(server, include_reasoning=False).json["choices"][0]["message"]
    raw = chat(server, reasoning_format="none").json["choices"][0]["message"]
    streamed = chat(server, reasoning_format="none", stream=True)

    assert hidden == {"role": "assistant", "content": "Yes."}
    assert raw["content"] == "<think>\nHm.</think>\n\nYes."
    text = "".join(d.get("content", "") for d in deltas(streamed))
    assert text == raw["content"]


@pytest.mark.parametrize(
    ("fields", "thinks"),
    [
        ({}, True),
        ({"reasoning_effort": "none"}, False),
        ({"reasoning": {"effort": "none"}}, False),
        ({"enable_thinking": False}, False),
        ({"thinking": {"type": "disabled"}}, False),
        ({"chat_template_kwargs": {"enable_thinking": False}}, False),
        ({"reasoning_effort": "high"}, True),
        ({"reasoning_effort": "minimal"}, True),
    ],
)
def test_thinking_is_switched_by_every_field_for_it(
    server: Running, script: Script, fields: dict[str, Any], *, thinks: bool
) -> None:
    script.say("So.<|im_end|>")

    message = chat(server, **fields).json["choices"][0]["message"]

    assert ("reasoning_content" in message) is thinks


def test_an_unknown_effort_is_refused_with_the_known_ones(server: Running) -> None:
    reply = chat(server, reasoning_effort="banana")

    assert reply.status == 400
    assert "minimal" in reply.json["error"]["message"]


def test_an_answer_that_was_begun_is_continued(server: Running, script: Script) -> None:
    script.say(" is Paris.<|im_end|>")
    begun = [*HI, {"role": "assistant", "content": "The capital"}]

    reply = chat(server, messages=begun, continue_final_message=True)

    assert reply.json["choices"][0]["message"]["content"] == " is Paris."


def test_a_body_in_the_shape_of_responses_is_answered_as_a_chat(
    server: Running, script: Script
) -> None:
    script.say("</think>Yes.<|im_end|>")
    items = [{"role": "user", "content": [{"type": "input_text", "text": "hi"}]}]

    reply = server.post("/v1/chat/completions", {"input": items, "tools": TOOLS[:0]})

    assert reply.json["choices"][0]["message"]["content"] == "Yes."


def test_what_clients_send_beyond_the_known_is_ignored(server: Running) -> None:
    extras = {
        "store": False,
        "stream_options": None,
        "prompt_cache_key": "x",
        "verbosity": "low",
        "service_tier": "auto",
        "metadata": {},
        "user": "u",
        "prediction": {"type": "content", "content": "x"},
        "modalities": ["text"],
        "cache_prompt": True,
        "samplers": ["top_k"],
        "typical_p": 1.0,
        "mirostat": 0,
        "novelty": {"a": [1]},
        "response_format": {"type": "json_schema", "json_schema": None},
        "max_completion_tokens": None,
        "reasoning_effort": None,
        "web_search_options": {},
    }
    tools = [*TOOLS, {"type": "web_search"}, {"type": "function", "name": "flat"}]

    assert chat(server, **extras, tools=tools).status == 200
    ignored = server.get("/status").json["http"]["ignored_fields"]
    assert ignored > 0


def test_history_of_every_kind_is_taken(server: Running, script: Script) -> None:
    history = [
        {"role": "developer", "content": "Be an agent."},
        {"role": "system", "content": "And brief."},
        {"role": "user", "content": [{"type": "text", "text": ""}, "a", "b"]},
        {
            "role": "assistant",
            "content": None,
            "reasoning_content": "Hm.",
            "tool_calls": [
                {
                    "id": "call_1",
                    "type": "function",
                    "function": {"name": "look", "arguments": '{"where": "here"}'},
                },
                {"function": {"name": "look", "arguments": '{"where": "he'}},
            ],
        },
        {"role": "tool", "tool_call_id": "call_1", "content": "nothing"},
        {"role": "system", "content": "Later."},
        {"role": "user", "content": "so?"},
    ]

    assert chat(server, messages=history, tools=TOOLS).status == 200
    tokens = list(script.requests[-1].token_ids)
    text = server.post("/detokenize", {"tokens": tokens}).json["content"]
    assert "None" not in text
    assert "Incomplete tool call: look" in text


@pytest.mark.parametrize(
    "part", [{"type": "image_url", "image_url": {"url": "x"}}, {"type": "novelty"}]
)
def test_a_part_that_is_no_text_is_refused_by_name(
    server: Running, part: dict[str, Any]
) -> None:
    reply = chat(server, messages=[{"role": "user", "content": [part]}])

    assert reply.status == 400
    assert part["type"] in reply.json["error"]["message"]


def test_an_error_in_the_middle_is_an_event_and_the_end(
    server: Running, script: Script
) -> None:
    script.say("</think>Begin", ModelResultError("not a number"))

    events = chat(server, stream=True).events

    assert events[-1] == "[DONE]"
    assert events[-2]["error"]["code"] == "internal_error"
    assert "choices" not in events[-2]


def test_silence_is_filled_with_empty_chunks(
    serve: Any, script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("splashpy.server.exchange._HEADERS_AFTER", 0.1)
    told = threading.Event()
    late = Said(("</think>late<|im_end|>",), prefill=lambda: told.wait(PATIENCE))
    script.answers = [late]
    server = serve(keepalive_seconds=0.05)

    def heard(answer: bytes) -> None:
        if answer.count(b"data: ") > 4:
            told.set()

    body = {"messages": HI, "stream": True, "return_progress": True}
    reply = server.listen("/v1/chat/completions", body, heard)

    found = deltas(reply)
    role = found.index({"role": "assistant", "content": ""})
    assert role > 3
    assert found[:role] == [{}] * role
    assert any("prompt_progress" in e for e in reply.events if isinstance(e, dict))
