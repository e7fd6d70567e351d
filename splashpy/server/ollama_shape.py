# SPDX-License-Identifier: Apache-2.0
"""How Ollama writes answers: JSON objects, one on each line of a stream.

A tool call comes as a whole and its arguments are an object. There is nothing a reader
of lines would skip, so a sign of life is a line without text.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from splashpy.protocol import Cycle, Done, Prefill, RankedToken, ToolDelta
from splashpy.server.endpoint import Endpoint
from splashpy.server.errors import ApiError, Dialect
from splashpy.server.logprobs import token_logprobs
from splashpy.server.outcome import Block, Outcome
from splashpy.server.streaming import line

Text = Callable[[str, str, list[Block]], dict[str, Any]]
"""The fields that hold content, reasoning and calls."""


def chat_text(content: str, thinking: str, calls: list[Block]) -> dict[str, Any]:
    """``message``, of ``/api/chat``."""
    message: dict[str, Any] = {"role": "assistant", "content": content}
    if thinking:
        message["thinking"] = thinking
    if calls:
        message["tool_calls"] = [_call(block) for block in calls]
    return {"message": message}


def generate_text(content: str, thinking: str, calls: list[Block]) -> dict[str, Any]:
    """``response``, of ``/api/generate``."""
    return {"response": content} | ({"thinking": thinking} if thinking else {})


def rfc3339(seconds: float) -> str:
    """A time as Ollama writes it, with nine digits after the point."""
    when = datetime.fromtimestamp(seconds, UTC)
    return f"{when:%Y-%m-%dT%H:%M:%S.%f}000Z"


class OllamaShape:
    """Writes the objects of one answer.

    Args:
        endpoint: of the server.
        model: name the answer carries.
        text: the fields that hold what was written.
    """

    def __init__(self, endpoint: Endpoint, model: str, text: Text):
        self._endpoint = endpoint
        self._model = model
        self._text = text

    def start(self, outcome: Outcome) -> Iterator[bytes]:
        """Nothing announces an answer here."""
        yield from ()

    def take(self, outcome: Outcome, event: Cycle | ToolDelta) -> Iterator[bytes]:
        """More text, or a call that is complete."""
        if isinstance(event, ToolDelta):
            if event.ended == "whole":
                yield self._line("", "", [outcome.call(event.index)])
            return
        texts = [piece for piece in event.pieces if piece.channel != "x"]
        about = _about(event.logprobs)
        if about and not texts:
            yield self._line("", "", about=about)
        for piece in texts:
            thought = piece.channel == "r"
            pair = ("", piece.text) if thought else (piece.text, "")
            yield self._line(*pair, about=about)
            about = {}

    def quiet(self, progress: Prefill | None) -> bytes:
        """A line without text."""
        return self._line("", "")

    def end(self, outcome: Outcome) -> Iterator[bytes]:
        """The line that says why it ended, with the counts."""
        yield line({**self._object("", "", []), **_ended(outcome)})

    def close(self, outcomes: list[Outcome]) -> Iterator[bytes]:
        """Nothing follows that line."""
        yield from ()

    def fail(self, error: ApiError) -> Iterator[bytes]:
        """The error as a line."""
        yield line(error.fields(Dialect.OLLAMA))

    def body(self, outcomes: list[Outcome]) -> Any:
        """The whole answer."""
        (outcome,) = outcomes
        text = self._object(outcome.content, outcome.reasoning, outcome.calls)
        return {**text, **_about(outcome.ranked), **_ended(outcome)}

    def loaded(self, reason: str) -> dict[str, Any]:
        """The answer to a request that asks for nothing but the model."""
        return {**self._object("", "", []), "done": True, "done_reason": reason}

    def _line(
        self,
        content: str,
        thinking: str,
        calls: Sequence[Block] = (),
        *,
        about: Mapping[str, Any] | None = None,
    ) -> bytes:
        return line({**self._object(content, thinking, list(calls)), **(about or {})})

    def _object(
        self, content: str, thinking: str, calls: list[Block]
    ) -> dict[str, Any]:
        return {
            "model": self._model,
            "created_at": rfc3339(self._endpoint.now()),
            **self._text(content, thinking, calls),
            "done": False,
        }


def _about(tokens: Sequence[RankedToken]) -> dict[str, Any]:
    """The field that says how likely tokens were; none where nobody asked."""
    return {"logprobs": token_logprobs(tokens)} if tokens else {}


def _call(block: Block) -> dict[str, Any]:
    function = {
        "index": block.index,
        "name": block.name,
        "arguments": json.loads(block.text),
    }
    return {"id": block.call_id, "function": function}


def _ended(outcome: Outcome) -> dict[str, Any]:
    """The fields of the last line; durations are in nanoseconds."""
    done = outcome.done
    assert done is not None
    reason = "length" if outcome.finish == "length" else "stop"
    return {"done": True, "done_reason": reason, **_counts(done)}


def _counts(done: Done) -> dict[str, int]:
    timing = done.timing
    spent = timing.queue_ms + timing.prefill_ms + timing.decode_ms
    return {
        "total_duration": _nanoseconds(spent),
        "load_duration": 0,
        "prompt_eval_count": done.usage.prompt,
        "prompt_eval_duration": _nanoseconds(timing.prefill_ms),
        "eval_count": done.usage.completion,
        "eval_duration": _nanoseconds(timing.decode_ms),
    }


def _nanoseconds(milliseconds: float) -> int:
    return round(1e6 * milliseconds)
