# SPDX-License-Identifier: Apache-2.0
"""Prompts as long as the context, and one token longer, at every endpoint."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from scripted_engine import CONTEXT, Script
from server_kit import Running

OPENAI = (
    f"This model's maximum context length is {CONTEXT} tokens. However, your request "
    f"has {CONTEXT} input tokens. Please reduce the length of the messages."
)
ANTHROPIC = f"prompt is too long: {CONTEXT} tokens > {CONTEXT - 1} maximum"
Body = Callable[[str], dict[str, Any]]


def messages(text: str) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": text}]}


def prompt(text: str) -> dict[str, Any]:
    return {"prompt": text}


ENDPOINTS: dict[str, tuple[Body, str]] = {
    "/v1/chat/completions": (messages, OPENAI),
    "/v1/completions": (prompt, OPENAI),
    "/v1/responses": (lambda text: {"input": text}, OPENAI),
    "/v1/messages": (messages, ANTHROPIC),
    "/completion": (prompt, OPENAI),
    "/api/chat": (messages, OPENAI),
    "/api/generate": (prompt, OPENAI),
    "/api/v0/chat/completions": (messages, OPENAI),
}
COUNTS = {
    "/v1/chat/completions": "/v1/chat/completions/input_tokens",
    "/v1/responses": "/v1/responses/input_tokens",
    "/v1/messages": "/v1/messages/count_tokens",
}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("path", ENDPOINTS)
def test_a_prompt_leaves_room_for_a_token_or_is_refused_before_any_header(
    polyglot: Running, script: Script, path: str, *, stream: bool
) -> None:
    body, sentence = ENDPOINTS[path]
    polyglot.post(path, body("x"))
    room = CONTEXT - len(script.requests[0].token_ids)

    fits = polyglot.post(path, {**body("x" * room), "stream": stream})
    over = polyglot.post(path, {**body("x" * (room + 1)), "stream": stream})

    assert fits.status == 200
    assert len(script.requests[1].token_ids) == CONTEXT - 1
    assert over.status == 400
    told = over.json["error"]
    assert (told if isinstance(told, str) else told["message"]) == sentence
    assert len(script.requests) == 2
    if path in COUNTS:
        found = polyglot.post(COUNTS[path], body("x" * (room + 1)))
        assert found.json["input_tokens"] == CONTEXT
    if sentence == OPENAI and path.startswith("/v1"):
        assert told["code"] == "context_length_exceeded"
        assert told["type"] == "invalid_request_error"
        assert told["param"] == next(iter(body("")))
    if path == "/completion":
        assert told["type"] == "exceed_context_size_error"
        assert (told["n_prompt_tokens"], told["n_ctx"]) == (CONTEXT, CONTEXT)
