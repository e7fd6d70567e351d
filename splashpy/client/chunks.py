# SPDX-License-Identifier: Apache-2.0
"""Requests and answers of an OpenAI-compatible server as commands and events.

A splashpy server sends its engine's own events in the ``splashpy`` field of every chunk
when a request asks for them. From any other server the events are made of what its
chunks say; what they do not say stays unknown.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from splashpy.protocol import (
    Channel,
    Cycle,
    Done,
    Event,
    Failure,
    FinishReason,
    Generate,
    Piece,
    Prefill,
    Timing,
    Usage,
)
from splashpy.wire import event_from_line

_SAMPLING = (
    "temperature",
    "top_k",
    "top_p",
    "min_p",
    "repetition_penalty",
    "presence_penalty",
    "frequency_penalty",
    "seed",
)
_CHANNELS: tuple[tuple[str, Channel], ...] = (
    ("reasoning_content", "r"),
    ("reasoning", "r"),
    ("content", "c"),
)
_REASONS: dict[str, FinishReason] = {"length": "length", "tool_calls": "tool_calls"}
_CODES = {
    "context_exceeds_memory": "E-FIT",
    "context_length_exceeded": "E-CONTEXT",
    "exceed_context_size_error": "E-CONTEXT",
    "insufficient_memory": "E-MEMORY",
    "invalid_api_key": "E-AUTH",
    "invalid_value": "E-USAGE",
}


def body_of(command: Generate, model: str) -> dict[str, Any]:
    """The body of ``/v1/chat/completions`` that asks the same.

    Args:
        command: has messages.
        model: as the server calls it.
    """
    sampling = command.sampling
    wishes: dict[str, Any] = {name: getattr(sampling, name) for name in _SAMPLING}
    wishes |= {
        "repeat_last_n": sampling.penalty_window,
        "stop": list(sampling.stop) or None,
        "logit_bias": {str(token): bias for token, bias in sampling.logit_bias} or None,
        "ignore_eos": sampling.ignore_eos or None,
        "max_tokens": command.max_tokens,
        "reasoning_effort": command.effort,
        "speculative": None if command.draft else False,
        "continue_final_message": command.continue_final or None,
    }
    return {
        "model": model,
        "messages": list(command.messages),
        "stream": True,
        "stream_options": {"include_usage": True},
        "return_progress": True,
        "priority": "foreground",
        "splashpy": {"events": True},
        **{name: value for name, value in wishes.items() if value is not None},
    }


def failure_of(request_id: str, error: Any, status: int = 0) -> Failure:
    """What a server's error says, as the failure of a request.

    Args:
        request_id: the request.
        error: the value of ``error``, whatever it is.
        status: of the answer; 0 inside a stream.
    """
    fields: Mapping[str, Any] = error if isinstance(error, Mapping) else {}
    code = str(fields.get("code") or fields.get("type") or "")
    message = str(fields.get("message") or error or "the server refused the request")
    if status == 401:
        code = "invalid_api_key"
    return Failure(
        id=request_id,
        code=_CODES.get(code, "E-SERVER"),
        message=message,
        why=f"the server answered with status {status}" if status else "",
    )


class ChunkReader:
    """Turns the chunks of one streamed answer into events.

    Args:
        request_id: that the events carry.
        native: the server sends the engine's own events; texts beside them are the
            same texts again.
    """

    def __init__(self, request_id: str, *, native: bool = False) -> None:
        self._id = request_id
        self._native = native
        self._cycles = 0
        self._usage = Usage()
        self._timing = Timing()
        self._reason: FinishReason = "stop"
        self.ended = False

    def take(self, chunk: Mapping[str, Any]) -> list[Event]:
        """The events a chunk brings."""
        if "error" in chunk:
            self.ended = True
            return [failure_of(self._id, chunk["error"])]
        extension = chunk.get("splashpy")
        if isinstance(extension, Mapping) and "event" in extension:
            return self._own(extension["event"])
        if self._native:
            return self._progress(chunk)
        self._note_counts(chunk)
        return [*self._progress(chunk), *self._pieces(chunk)]

    def end(self, *, cancelled: bool = False) -> list[Event]:
        """The end of the stream, where no event told it."""
        if self.ended:
            return []
        self.ended = True
        return [
            Done(
                id=self._id,
                reason="cancelled" if cancelled else self._reason,
                usage=self._usage,
                timing=self._timing,
            )
        ]

    def _own(self, fields: Any) -> list[Event]:
        if not isinstance(fields, Mapping):
            return []
        line = json.dumps({**fields, "id": self._id})
        event = event_from_line(line)
        if isinstance(event, Cycle):
            self._cycles += 1
            self._usage = Usage(completion=self._usage.completion + event.committed)
        self.ended = self.ended or isinstance(event, Done | Failure)
        return [] if event is None else [event]

    def _progress(self, chunk: Mapping[str, Any]) -> list[Event]:
        told = chunk.get("prompt_progress")
        if not isinstance(told, Mapping):
            return []
        return [
            Prefill(
                id=self._id,
                total=_whole(told.get("total")),
                cached=_whole(told.get("cache")),
                processed=_whole(told.get("processed")),
                elapsed_ms=float(_whole(told.get("time_ms"))),
            )
        ]

    def _pieces(self, chunk: Mapping[str, Any]) -> list[Event]:
        choices = chunk.get("choices") or [{}]
        choice = choices[0] if isinstance(choices[0], Mapping) else {}
        finish = choice.get("finish_reason")
        if finish:
            self._reason = _REASONS.get(finish, "stop")
        delta = choice.get("delta") or {}
        pieces = tuple(
            Piece(delta[name], "t", channel)
            for name, channel in _CHANNELS
            if isinstance(delta.get(name), str) and delta[name]
        )
        if not pieces:
            return []
        self._cycles += 1
        return [
            Cycle(
                id=self._id,
                i=self._cycles - 1,
                drafted=0,
                accepted=0,
                committed=1,
                draft_ms=0.0,
                verify_ms=0.0,
                pieces=pieces,
            )
        ]

    def _note_counts(self, chunk: Mapping[str, Any]) -> None:
        usage, timings = chunk.get("usage"), chunk.get("timings")
        if isinstance(usage, Mapping):
            details = usage.get("prompt_tokens_details") or {}
            self._usage = Usage(
                prompt=_whole(usage.get("prompt_tokens")),
                cached=_whole(details.get("cached_tokens")),
                completion=_whole(usage.get("completion_tokens")),
            )
        if isinstance(timings, Mapping):
            self._timing = Timing(
                prefill_ms=float(timings.get("prompt_ms") or 0.0),
                decode_ms=float(timings.get("predicted_ms") or 0.0),
                first_emission_tokens=1,
            )


def _whole(value: Any) -> int:
    return int(value) if isinstance(value, int | float) else 0
