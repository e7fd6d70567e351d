# SPDX-License-Identifier: Apache-2.0
"""Log-probabilities as each dialect asks for them and writes them.

Numbers are the model's own: before bias, penalties, rules and temperature. Alternatives
are sorted, the token itself is among them wherever there are any.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Iterable, Sequence
from typing import Any

from splashpy.protocol import Alternative, RankedToken
from splashpy.server.fields import Fields

MOST = 20
"""Alternatives of a token in OpenAI's dialects."""

LEAST = -9999.0
"""The engine's word for a probability of zero."""

_MOST_NATIVE = 100


def read_chat(body: Fields) -> int | None:
    """Alternatives a chat request wants; None: no log-probabilities.

    Raises:
        ApiError: a number of alternatives to nothing.
    """
    most = body.integer("top_logprobs", 0, MOST)
    if body.flag("logprobs"):
        return most or 0
    if most:
        raise body.wrong("top_logprobs", "0 where logprobs is not true", most)
    return None


def read_response(body: Fields) -> int | None:
    """Alternatives a Responses request wants; None: no log-probabilities."""
    most = body.integer("top_logprobs", 0, MOST)
    included = "message.output_text.logprobs" in body.items("include")
    return most or 0 if included or most else None


def read_native(body: Fields) -> int | None:
    """Alternatives a request of llama.cpp's wants; None: no log-probabilities."""
    return body.integer("n_probs", 0, _MOST_NATIVE) or None


def chat_logprobs(tokens: Iterable[RankedToken]) -> dict[str, Any]:
    """``logprobs`` of a choice in Chat Completions."""
    return {"content": [_entry(token) for token in tokens], "refusal": None}


def token_logprobs(tokens: Iterable[RankedToken]) -> list[dict[str, Any]]:
    """``logprobs`` of a text part in Responses, and of a line of Ollama's."""
    return [_entry(token) for token in tokens]


def native_logprobs(tokens: Iterable[RankedToken]) -> list[dict[str, Any]]:
    """``completion_probabilities`` of llama.cpp."""
    return [
        {
            "id": token.token_id,
            **_numbers(token.piece, token.logprob),
            "top_logprobs": [
                {"id": other.token_id, **_numbers(other.piece, other.logprob)}
                for other in _alternatives(token)
            ],
        }
        for token in tokens
    ]


def native_probs(tokens: Iterable[RankedToken]) -> list[dict[str, Any]]:
    """The same after sampling: probabilities, and no tokens that could not come."""
    return [
        {
            **_probability(token),
            "top_probs": [
                _probability(other)
                for other in _alternatives(token)
                if other.logprob > LEAST
            ],
        }
        for token in tokens
    ]


def _probability(token: RankedToken | Alternative) -> dict[str, Any]:
    found = {"id": token.token_id, **_numbers(token.piece, None)}
    del found["logprob"]
    return {**found, "prob": math.exp(token.logprob or 0.0)}


def completion_logprobs(
    tokens: Sequence[RankedToken], first: int = 0
) -> dict[str, Any]:
    """``logprobs`` of a choice in Completions.

    Args:
        tokens: in order.
        first: characters of the choice's text before these tokens' text.
    """
    return {
        "tokens": [_name(token.piece) for token in tokens],
        "token_logprobs": [token.logprob for token in tokens],
        "top_logprobs": [_by_name(token) for token in tokens],
        "text_offset": [first + token.offset for token in tokens],
    }


def mean_logprob(tokens: Sequence[RankedToken]) -> float:
    """How likely the model finds a text per token; the least possible for no text."""
    known = [token.logprob for token in tokens if token.logprob is not None]
    return sum(known) / len(known) if known else float("-inf")


def _alternatives(token: RankedToken) -> list[Alternative]:
    found = list(token.top)
    if found and all(other.token_id != token.token_id for other in found):
        logprob = 0.0 if token.logprob is None else token.logprob
        found.append(
            Alternative(token_id=token.token_id, piece=token.piece, logprob=logprob)
        )
    return found


def _entry(token: RankedToken) -> dict[str, Any]:
    others = _alternatives(token)
    return {
        **_numbers(token.piece, token.logprob),
        "top_logprobs": [_numbers(each.piece, each.logprob) for each in others],
    }


def _numbers(piece: str, logprob: float | None) -> dict[str, Any]:
    spelled = base64.b64decode(piece)
    text = spelled.decode(errors="replace")
    return {"token": text, "logprob": logprob, "bytes": list(spelled)}


def _by_name(token: RankedToken) -> dict[str, float] | None:
    if token.logprob is None:
        return None
    others = {_name(other.piece): other.logprob for other in token.top}
    return {**others, _name(token.piece): token.logprob}


def _name(piece: str) -> str:
    """The text of a token; of one that is part of a character, its bytes by number."""
    spelled = base64.b64decode(piece)
    try:
        return spelled.decode()
    except UnicodeDecodeError:
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in spelled)
