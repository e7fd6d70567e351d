# SPDX-License-Identifier: Apache-2.0
"""Bodies no client of good will should be refused for."""

from __future__ import annotations

import json
from collections.abc import Iterator
from importlib import resources
from typing import Any

import pytest
from scripted_engine import Script
from server_kit import Running, until

HI = [{"role": "user", "content": "hi"}]
MINIMAL: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {"messages": HI},
    "/v1/completions": {"prompt": "x"},
    "/v1/fim/completions": {"prompt": "x"},
    "/v1/responses": {"input": "hi"},
    "/v1/messages": {"messages": HI},
    "/completion": {"prompt": "x"},
    "/infill": {"input_prefix": "x"},
    "/tokenize": {"content": "x"},
    "/detokenize": {"tokens": [1]},
    "/api/chat": {"messages": HI},
    "/api/generate": {"prompt": "x"},
    "/api/show": {"model": "tiny"},
}
DOCUMENT = json.loads(
    resources.files("splashpy.server").joinpath("openapi.json").read_bytes()
)


@pytest.fixture
def opened(polyglot: Running, script: Script) -> Iterator[Running]:
    yield polyglot
    until(lambda: polyglot.endpoint.active == 0)


def fields_of(path: str) -> list[str]:
    """Every field the description of a path names."""
    body = DOCUMENT["paths"][path]["post"]["requestBody"]
    schema = body["content"]["application/json"]["schema"]
    name = schema["$ref"].rpartition("/")[2]
    return list(DOCUMENT["components"]["schemas"][name]["properties"])


@pytest.mark.parametrize("path", MINIMAL)
def test_a_field_that_is_null_is_a_field_that_is_absent(
    opened: Running, path: str
) -> None:
    body = MINIMAL[path]
    nulls = dict.fromkeys(fields_of(path))

    reply = opened.post(path, {**nulls, **body})

    assert reply.status == 200, reply.body
    assert nulls


@pytest.mark.parametrize("path", MINIMAL)
def test_what_nobody_knows_is_ignored(opened: Running, path: str) -> None:
    strange = {"novelty": {"a": [1, None]}, "x-é": "🙂", "": 5}

    assert opened.post(path, {**strange, **MINIMAL[path]}).status == 200


def test_a_long_conversation_with_many_large_tools_is_answered(
    serve: Any, script: Script
) -> None:
    server = serve()
    turns = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]
    properties = {f"p{n}": {"type": "string", "minLength": n} for n in range(50)}
    parameters = {"type": "object", "properties": properties, "$schema": "x"}
    tools = [
        {"type": "function", "function": {"name": f"t{n}", "parameters": parameters}}
        for n in range(50)
    ]

    long = server.post("/v1/chat/completions/input_tokens", {"messages": turns * 250})
    large = {"messages": HI, "tools": tools}
    counted = server.post("/v1/chat/completions/input_tokens", large)

    assert long.json["input_tokens"] > 500
    assert counted.json["input_tokens"] > 50 * len(json.dumps(parameters))


@pytest.mark.parametrize(
    "tool",
    [
        {"type": "function", "name": "bare"},
        {"type": "function", "function": {"name": "x", "parameters": None}},
        {"type": "function", "function": {"name": "x", "strict": None}},
        {"type": "web_search"},
        {"type": "custom", "custom": {"name": "x"}},
        {"type": "novelty_20991231", "anything": [1]},
    ],
)
def test_a_tool_of_any_kind_is_taken(opened: Running, tool: dict[str, Any]) -> None:
    body = {"messages": HI, "tools": [tool]}

    assert opened.post("/v1/chat/completions", body).status == 200


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (
            "/v1/chat/completions",  # Xcode
            {"messages": HI, "stream": True, "tools": []},
        ),
        (
            "/v1/chat/completions",  # opencode, a later turn
            {
                "messages": [
                    {"role": "developer", "content": "Be an agent."},
                    *HI,
                    {"role": "assistant", "content": "", "reasoning_content": "Hm."},
                    {"role": "user", "content": [{"type": "text", "text": "go on"}]},
                ],
                "stream": True,
                "stream_options": {"include_usage": True},
                "max_tokens": 32000,
                "reasoning_effort": "high",
                "store": False,
            },
        ),
        (
            "/v1/chat/completions",  # llama.vscode
            {
                "messages": HI,
                "cache_prompt": True,
                "id_slot": 0,
                "samplers": ["top_k", "infill"],
                "min_p": 0.1,
                "response_fields": [],
                "lora": [],
                "timings_per_token": True,
                "return_progress": True,
                "stream": True,
                "chat_template_kwargs": {"enable_thinking": False},
                "typical_p": 1,
                "xtc_probability": 0,
                "dry_multiplier": 0,
                "mirostat": 0,
            },
        ),
        (
            "/infill",  # llama.vim
            {
                "input_prefix": "def f():\n",
                "input_suffix": "\nf()",
                "input_extra": [{"filename": "a.py", "text": "x"}],
                "prompt": "    ",
                "n_predict": 128,
                "stop": ["\n\n"],
                "n_indent": 4,
                "top_k": 40,
                "top_p": 0.9,
                "samplers": ["top_k", "top_p", "infill"],
                "stream": False,
                "cache_prompt": True,
                "t_max_prompt_ms": 500,
                "t_max_predict_ms": 1000,
                "id_slot": 0,
                "response_fields": ["content", "timings/predicted_n"],
            },
        ),
        (
            "/v1/completions",  # minuet
            {"prompt": "a", "suffix": "b", "stream": True, "stop": "\n", "n": 1},
        ),
    ],
)
def test_what_editors_send_is_answered(
    opened: Running, path: str, body: dict[str, Any]
) -> None:
    reply = opened.post(path, body, Accept="application/json")

    streams = body.get("stream", False)
    assert reply.status == 200
    assert ("event-stream" in reply.headers["content-type"]) is streams


def test_timings_come_with_every_chunk_where_they_are_wanted(
    opened: Running, script: Script
) -> None:
    for path in ("/v1/chat/completions", "/v1/completions", "/completion"):
        script.say("</think>One two three<|im_end|>", cached=1)
        body = {**MINIMAL[path], "stream": True, "timings_per_token": True}
        body |= {"prompt": "xyz"} if "prompt" in body else {}

        events = opened.post(path, body).events

        found = [e["timings"] for e in events if isinstance(e, dict) and "timings" in e]
        counts = [timing["predicted_n"] for timing in found]
        assert len(counts) > 3, path
        assert counts == sorted(counts), path
        assert {timing["cache_n"] for timing in found} == {1}, path


@pytest.mark.parametrize("path", [*MINIMAL][:7])
def test_progress_is_refused_where_there_is_no_stream_to_tell_it_in(
    opened: Running, path: str
) -> None:
    reply = opened.post(path, {**MINIMAL[path], "return_progress": True})

    assert reply.status == 400
    assert "return_progress" in json.dumps(reply.json)


def test_a_gap_is_filled_in_the_shape_of_a_chat(
    opened: Running, script: Script
) -> None:
    script.say("x + 1<|fim_pad|><|im_end|>")
    body = {"prompt": "return ", "suffix": "\n", "random_seed": 5, "max_tokens": 9}

    whole = opened.post("/v1/fim/completions", body).json
    events = opened.post("/fim/completions", {**body, "stream": True}).events

    (choice,) = whole["choices"]
    assert choice["message"] == {"role": "assistant", "content": "x + 1"}
    deltas = [event["choices"][0]["delta"] for event in events[:-1]]
    assert "".join(delta.get("content", "") for delta in deltas) == "x + 1"
    assert script.requests[0].seed == 5
    assert script.requests[0].foreground


def test_no_request_invents_a_label_of_the_metrics(opened: Running) -> None:
    def labels() -> set[str]:
        text = opened.get("/metrics").body.decode()
        return {line.rpartition(" ")[0] for line in text.splitlines() if "{" in line}

    opened.get("/nowhere")
    opened.post("/v1/chat/completions", {"messages": HI})
    opened.get("/v1/models/other")
    labels()
    known = labels()

    for number in range(3):
        opened.get(f"/nowhere/{number}")
        opened.get(f"/v1/models/{number}")
        model = f'made "up" {number}'
        opened.post("/v1/chat/completions", {"messages": HI, "model": model})

    assert labels() == known


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/responses"])
@pytest.mark.parametrize("name", ["temperature", "timeout", "metadata", "seed"])
@pytest.mark.parametrize("digits", ["1e999", "1" + 400 * "0", "1" + 9000 * "0"])
def test_a_number_no_machine_holds_is_refused_or_passed_over(
    opened: Running, path: str, name: str, digits: str
) -> None:
    fields = json.dumps(MINIMAL[path])[1:-1]
    body = f'{{{fields}, "{name}": {digits}}}'.encode()

    reply = opened.request("POST", path, body, {"Content-Type": "application/json"})

    assert reply.status == 400 or (reply.status, name) == (200, "metadata")
    assert b"Infinity" not in reply.body
