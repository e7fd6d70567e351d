# SPDX-License-Identifier: Apache-2.0
"""Questions the tokenizer answers: counting, cutting, joining, showing a prompt."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any

from splashpy.protocol import Count, Counted, Detokenize, Generate, Tokenize, Tokens
from splashpy.server.endpoint import Endpoint
from splashpy.server.engine import new_id
from splashpy.server.fields import Fields


async def counted(endpoint: Endpoint, command: Generate, **more: Any) -> Counted:
    """How long the prompt of a command is.

    Args:
        endpoint: of the server.
        command: what would be generated.
        more: further fields of ``Count``.

    Raises:
        ApiError: its prompt cannot be made.
    """
    found = await endpoint.engine.ask(
        Count(
            id=new_id("", 32),
            messages=command.messages,
            prompt=command.prompt,
            prompt_ids=command.prompt_ids,
            tools=command.tools,
            effort=command.effort,
            options=command.options,
            continue_final=command.continue_final,
            **more,
        )
    )
    assert isinstance(found, Counted)
    return found


async def tokenize(endpoint: Endpoint, body: Fields) -> dict[str, Any]:
    """``/tokenize`` of llama.cpp (``content``) and of vLLM (``prompt``).

    Raises:
        ApiError: neither field is a text.
    """
    if body.has("content") or not body.has("prompt"):
        found = await _cut(endpoint, body.text("content"), body)
        if not body.flag("with_pieces"):
            return {"tokens": list(found.token_ids)}
        pieces = zip(found.token_ids, found.pieces, strict=True)
        return {"tokens": [{"id": i, "piece": _piece(text)} for i, text in pieces]}
    special = body.flag("add_special_tokens", default=True)
    found = await _cut(endpoint, body.text("prompt"), body, add_special=special)
    strings = [base64.b64decode(p).decode(errors="replace") for p in found.pieces]
    return {
        "count": len(found.token_ids),
        "max_model_len": endpoint.engine.context,
        "tokens": list(found.token_ids),
        "token_strs": strings if body.flag("return_token_strs") else None,
    }


def conversation_tokens(endpoint: Endpoint, found: Counted) -> dict[str, Any]:
    """``/tokenize`` of vLLM for a conversation."""
    return {
        "count": found.tokens,
        "max_model_len": endpoint.engine.context,
        "tokens": list(found.token_ids),
        "token_strs": None,
    }


async def detokenize(endpoint: Endpoint, body: Fields) -> dict[str, Any]:
    """``/detokenize`` of both.

    Raises:
        ApiError: an id is no token.
    """
    ids = []
    for number, value in enumerate(body.items("tokens")):
        if not isinstance(value, int) or isinstance(value, bool):
            raise body.wrong(f"tokens[{number}]", "a token id", value)
        ids.append(value)
    text = await joined(endpoint, ids)
    return {"content": text, "prompt": text}


async def joined(endpoint: Endpoint, token_ids: Sequence[int]) -> str:
    """The text of tokens.

    Raises:
        ApiError: an id is no token.
    """
    asked = Detokenize(id=new_id("", 32), token_ids=tuple(token_ids))
    found = await endpoint.engine.ask(asked)
    assert isinstance(found, Tokens)
    return found.text


async def token_ids(endpoint: Endpoint, text: str, *, begins: bool) -> tuple[int, ...]:
    """The tokens of a text; ``begins``: with BOS where the model wants it."""
    asked = Tokenize(id=new_id("", 32), text=text, add_special=begins)
    found = await endpoint.engine.ask(asked)
    assert isinstance(found, Tokens)
    return found.token_ids


async def _cut(
    endpoint: Endpoint, text: str, body: Fields, *, add_special: bool | None = None
) -> Tokens:
    if add_special is None:
        add_special = body.flag("add_special")
    found = await endpoint.engine.ask(
        Tokenize(
            id=new_id("", 32),
            text=text,
            add_special=add_special,
            parse_special=body.flag("parse_special", default=True),
        )
    )
    assert isinstance(found, Tokens)
    return found


def _piece(encoded: str) -> str | list[int]:
    """The text of a token, or its bytes where they are no text."""
    data = base64.b64decode(encoded)
    try:
        return data.decode()
    except UnicodeDecodeError:
        return list(data)
