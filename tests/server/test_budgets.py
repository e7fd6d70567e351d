# SPDX-License-Identifier: Apache-2.0
"""Budgets of reasoning, in the words of every dialect."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from scripted_engine import PLAIN_TEMPLATE, Script, write_speaker
from server_kit import Running

MESSAGES = [{"role": "user", "content": "Hi"}]
UNSWITCHED = PLAIN_TEMPLATE.replace("assistant\n", "assistant\n<think>\n")


@pytest.mark.parametrize(
    ("path", "fields", "budget"),
    [
        ("/v1/chat/completions", {"thinking_budget": 7}, 7),
        ("/v1/chat/completions", {"reasoning_budget_tokens": 0}, 0),
        ("/v1/chat/completions", {"thinking_token_budget": -1}, None),
        ("/v1/chat/completions", {"reasoning": {"max_tokens": 9}}, 9),
        ("/v1/chat/completions", {"thinking_budget": 7, "max_tokens": 12}, 7),
        ("/v1/chat/completions", {"thinking_budget": 50, "max_tokens": 12}, 7),
        ("/v1/responses", {"reasoning": {"max_tokens": 9}}, 9),
        ("/v1/chat/completions", {"thinking_budget": 9, "max_tokens": 1 << 40}, 9),
        (
            "/v1/messages",
            {"thinking": {"type": "enabled", "budget_tokens": 5}, "max_tokens": 99},
            5,
        ),
    ],
)
def test_a_budget_of_reasoning_reaches_the_engine_with_room_for_an_answer(
    server: Running, script: Script, path: str, fields: dict[str, Any], budget: Any
) -> None:
    body = {"messages": MESSAGES, "input": "Hi", **fields}
    assert server.post(path, body).status == 200

    (request,) = script.requests
    if budget is None:
        assert request.reasoning is None
    else:
        assert request.reasoning is not None
        assert request.reasoning.tokens == budget
        text = server.post(
            "/detokenize", {"tokens": list(request.reasoning.closing)}
        ).json["content"]
        assert text == "\n</think>"


def test_a_server_may_limit_all_reasoning(serve: Any, script: Script) -> None:
    server = serve(max_reasoning=3)

    for fields in ({}, {"thinking_budget": 2}, {"thinking_budget": 8}):
        body = {"messages": MESSAGES, **fields}
        assert server.post("/v1/chat/completions", body).status == 200

    found = [request.reasoning for request in script.requests]
    limits = [limit.tokens for limit in found if limit is not None]
    assert limits == [3, 2, 3]


def test_a_model_that_cannot_stop_reasoning_is_told_of(
    serve: Any, script: Script, tmp_path: Path
) -> None:
    server = serve(write_speaker(tmp_path / "model", UNSWITCHED))
    script.say("so</think>yes<|im_end|>")

    for effort, told in (("none", True), ("low", None)):
        body = {"messages": MESSAGES, "reasoning_effort": effort}
        answer = server.post("/v1/chat/completions", body).json
        assert answer["choices"][0]["message"]["reasoning_content"] == "so"
        assert answer["splashpy"].get("thinking_unsupported") is told
