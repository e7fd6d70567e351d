# SPDX-License-Identifier: Apache-2.0
"""LM Studio's dialect, as strict readers of it expect it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from scripted_engine import CONTEXT, Script
from server_kit import Running


@pytest.fixture(scope="module")
def own(speaker: Any, start: Any) -> Iterator[Running]:
    server = start(speaker, lmstudio=True, family="qwen3", bits=4)
    yield server.wait_ready()
    server.__exit__()
    assert server.faults == []


@pytest.fixture
def opened(own: Running, script: Script) -> Running:
    return own


def test_the_list_has_only_words_zed_knows(opened: Running) -> None:
    listed = opened.get("/api/v0/models").json
    entry = opened.get("/api/v0/models/maker/tiny").json

    assert [item["id"] for item in listed["data"]] == ["maker/tiny", "tiny"]
    assert listed["data"][0] == entry
    assert entry == {
        "id": "maker/tiny",
        "object": "model",
        "type": "llm",
        "publisher": "splashpy",
        "arch": "qwen3",
        "compatibility_type": "mlx",
        "quantization": "4bit",
        "state": "loaded",
        "max_context_length": CONTEXT,
        "loaded_context_length": CONTEXT,
        "capabilities": ["tool_use"],
    }
    unknown = opened.get("/api/v0/models/other")
    assert unknown.status == 404
    assert unknown.json["error"]["code"] == "model_not_found"


def test_chats_and_completions_are_those_of_openai(
    opened: Running, script: Script
) -> None:
    script.say("</think>Yes.<|im_end|>")
    body = {"messages": [{"role": "user", "content": "hi"}], "stream": True}

    chat = opened.post("/api/v0/chat/completions", body).events
    text = opened.post("/api/v0/completions", {"prompt": "x"}).json

    said = [e["choices"][0]["delta"].get("content", "") for e in chat[:-1]]
    assert "".join(said) == "Yes."
    assert chat[-1] == "[DONE]"
    assert text["object"] == "text_completion"


def test_the_dialect_is_there_only_where_it_was_asked_for(server: Running) -> None:
    reply = server.get("/api/v0/models")

    assert reply.status == 404
    assert reply.json["error"]["code"] == "not_found"
