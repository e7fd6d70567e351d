# SPDX-License-Identifier: Apache-2.0
"""Ollama's dialect: its own client, and what editors read past it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import ollama
import pytest
from scripted_engine import CONTEXT, Script
from server_kit import Reply, Running

from splashpy.errors import ModelResultError

HI = [{"role": "user", "content": "hi"}]
CALL = (
    "<tool_call>\n<function=look>\n<parameter=where>\nhere\n</parameter>\n"
    "</function>\n</tool_call>"
)
PARAMETERS = {"type": "object", "properties": {"where": {"type": "string"}}}
TOOLS: list[dict[str, Any]] = [
    {"type": "function", "function": {"name": "look", "parameters": PARAMETERS}}
]


@pytest.fixture(scope="module")
def own(speaker: Any, start: Any) -> Iterator[Running]:
    server = start(speaker, ollama=True, family="qwen3", bits=4, size_bytes=77)
    yield server.wait_ready()
    server.__exit__()
    assert server.faults == []


@pytest.fixture
def opened(own: Running, script: Script) -> Running:
    return own


@pytest.fixture
def client(opened: Running) -> Iterator[ollama.Client]:
    with ollama.Client(host=opened.url) as client:
        yield client


def lines(reply: Reply) -> list[Any]:
    assert reply.headers["content-type"] == "application/x-ndjson"
    return [json.loads(text) for text in reply.body.splitlines()]


# --- Ollama's own client --------------------------------------------------------------


def test_the_client_lists_and_shows_the_model(client: ollama.Client) -> None:
    names = [model.model for model in client.list().models]
    shown = client.show("maker/tiny:latest")
    running = client.ps().models

    assert names == ["maker/tiny", "tiny"]
    assert shown.capabilities == ["completion", "tools", "thinking", "insert"]
    assert shown.modelinfo is not None
    assert shown.modelinfo["qwen3.context_length"] == CONTEXT
    assert [model.context_length for model in running] == [CONTEXT]
    assert client.pull("maker/tiny").status == "success"


def test_the_client_chats_with_reasoning_and_calls(
    client: ollama.Client, script: Script
) -> None:
    script.say(f"Look.</think>I look.{CALL}\n{CALL}<|im_end|>")

    parts = list(client.chat("tiny", HI, tools=TOOLS, think=True, stream=True))
    whole = client.chat("tiny", HI, tools=TOOLS, think=True)

    calls = [call for part in parts for call in part.message.tool_calls or ()]
    assert "".join(part.message.thinking or "" for part in parts) == "Look."
    assert "".join(part.message.content or "" for part in parts) == "I look."
    assert [call.function.arguments for call in calls] == [{"where": "here"}] * 2
    assert [part.done for part in parts] == [False] * (len(parts) - 1) + [True]
    assert whole.message.thinking == "Look."
    assert whole.message.content == "I look."
    assert whole.message.tool_calls == calls
    assert parts[-1].eval_count == whole.eval_count
    assert whole.prompt_eval_count == len(script.requests[0].token_ids)


def test_the_client_sends_back_what_a_call_came_to(
    opened: Running, client: ollama.Client, script: Script
) -> None:
    script.say(f"</think>{CALL}<|im_end|>")
    message = client.chat("tiny", HI, tools=TOOLS).message
    script.say("</think>Found it.<|im_end|>")
    result = {"role": "tool", "tool_name": "look", "content": "a treasure"}

    answer = client.chat("tiny", [*HI, message, result], tools=TOOLS)

    assert answer.message.content == "Found it."
    tokens = list(script.requests[-1].token_ids)
    text = opened.post("/detokenize", {"tokens": tokens}).json["content"]
    assert "<parameter=where>\nhere\n</parameter>" in text
    assert "a treasure" in text


def test_the_client_fills_a_gap_and_continues_a_text(
    client: ollama.Client, script: Script
) -> None:
    script.say("x + 1<|fim_pad|><|im_end|>")

    filled = client.generate("tiny", prompt="return ", suffix="\n")
    raw = client.generate("tiny", prompt="Once", raw=True)
    asked = client.generate("tiny", prompt="Once", system="Be brief.", think=False)

    assert filled.response == raw.response == asked.response == "x + 1"
    gap, text, chat = (len(request.token_ids) for request in script.requests)
    assert text == len("Once")
    assert gap > text
    assert chat > text


def test_the_client_reads_the_errors(client: ollama.Client, opened: Running) -> None:
    long = [{"role": "user", "content": "x" * CONTEXT}]

    with pytest.raises(ollama.ResponseError, match="maximum context length") as error:
        client.chat("tiny", long)
    with pytest.raises(ollama.ResponseError, match="splashpy pull"):
        client.pull("another")
    with pytest.raises(ollama.ResponseError, match="no embeddings"):
        client.embed("tiny", "x")

    assert error.value.status_code == 400
    assert client.pull("tiny").status == "success"


# --- what editors read ----------------------------------------------------------------


def test_what_editors_ask_before_they_list_a_model(opened: Running) -> None:
    version = opened.get("/api/version").json["version"]
    show = opened.post("/api/show", {"name": "tiny"}).json
    (entry, _) = opened.get("/api/tags").json["models"]

    assert tuple(map(int, version.split("."))) >= (0, 6, 4)
    assert ".Suffix" in show["template"]
    assert f"num_ctx {CONTEXT}" in show["parameters"].splitlines()
    assert entry["details"]["family"] == show["details"]["family"] == "qwen3"
    assert entry["details"]["quantization_level"] == "Q4"
    assert len(entry["digest"]) == 64
    assert entry["size"] == 77
    assert opened.get("/").body == b"Ollama is running"
    assert opened.request("HEAD", "/api/tags").status == 200


def test_a_request_without_a_prompt_asks_for_the_model_only(
    opened: Running, script: Script
) -> None:
    chat = opened.post("/api/chat", {"model": "tiny", "messages": []}).json
    text = opened.post("/api/generate", {"model": "tiny", "keep_alive": 0}).json

    assert (chat["done"], chat["done_reason"]) == (True, "load")
    assert chat["message"] == {"role": "assistant", "content": ""}
    assert (text["response"], text["done_reason"]) == ("", "unload")
    assert script.requests == []


def test_options_reach_the_engine(opened: Running, script: Script) -> None:
    options = {
        "temperature": 0.5,
        "top_k": 7,
        "num_predict": 5,
        "num_ctx": 99,
        "stop": ["x"],
        "repeat_penalty": 1.1,
        "seed": 3,
    }

    reply = opened.post("/api/chat", {"messages": HI, "options": options})

    (request,) = script.requests
    assert lines(reply)[-1]["done"] is True
    assert (request.sampling.temperature, request.sampling.top_k) == (0.5, 7)
    assert request.sampling.penalty_window == 64
    assert (request.max_new_tokens, request.seed) == (5, 3)


@pytest.mark.parametrize("count", [-1, -2, 0])
def test_an_answer_without_a_budget_may_fill_the_context(
    opened: Running, script: Script, count: int
) -> None:
    opened.post("/api/chat", {"messages": HI, "options": {"num_predict": count}})

    assert script.requests[0].max_new_tokens is None


@pytest.mark.parametrize(
    ("think", "thinks"),
    [(None, True), (True, True), (False, False), ("high", True), ("max", True)],
)
def test_thinking_is_switched(
    opened: Running, script: Script, think: Any, *, thinks: bool
) -> None:
    script.say("So.<|im_end|>")
    body = {"messages": HI, "think": think, "stream": False}

    message = opened.post("/api/chat", body).json["message"]

    assert ("thinking" in message) is thinks


@pytest.mark.parametrize("form", ["json", {"type": "object"}])
def test_an_answer_of_a_given_form_is_followed(
    opened: Running, script: Script, form: Any
) -> None:
    assert opened.post("/api/chat", {"messages": HI, "format": form}).status == 200
    assert opened.post("/api/generate", {"prompt": "a", "format": form}).status == 200
    assert all(request.grammar is not None for request in script.requests)


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/api/chat", {"messages": [{"content": "hi"}]}),
        ("/api/chat", {"messages": [{**HI[0], "images": ["eA=="]}]}),
        ("/api/chat", {"messages": HI, "think": 5}),
        ("/api/chat", {"messages": HI, "format": "xml"}),
        ("/api/chat", {"messages": HI, "options": {"temperature": "hot"}}),
        ("/api/generate", {"prompt": "x", "images": ["eA=="]}),
    ],
)
def test_an_impossible_request_is_refused_in_one_sentence(
    opened: Running, script: Script, path: str, body: dict[str, Any]
) -> None:
    reply = opened.post(path, body)

    assert reply.status == 400
    assert list(reply.json) == ["error"]
    assert isinstance(reply.json["error"], str)
    assert script.requests == []


def test_an_error_in_the_middle_is_a_line(opened: Running, script: Script) -> None:
    script.say("</think>Begin", ModelResultError("not a number"))

    found = lines(opened.post("/api/chat", {"messages": HI}))

    assert list(found[-1]) == ["error"]


def test_a_form_is_taken_from_programs_but_not_from_pages(opened: Running) -> None:
    body = json.dumps({"messages": HI, "stream": False}).encode()
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    page = {"Origin": "http://localhost:3000"}

    assert opened.request("POST", "/api/chat", body, form).status == 200
    assert opened.request("POST", "/api/chat", body, {**form, **page}).status == 415
    assert opened.request("POST", "/v1/chat/completions", body, form).status == 415


def test_the_dialect_is_there_only_where_it_was_asked_for(server: Running) -> None:
    reply = server.get("/api/tags")

    assert reply.status == 404
    assert list(reply.json) == ["error"]
    assert server.get("/").body == b"splashpy is running"
