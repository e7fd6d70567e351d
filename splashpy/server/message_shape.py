# SPDX-License-Identifier: Apache-2.0
"""How Anthropic writes a message, whole or as events."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from typing import Any

from splashpy.protocol import Cycle, Prefill, ToolDelta
from splashpy.server.engine import new_id
from splashpy.server.errors import ApiError, Dialect
from splashpy.server.outcome import Block, Outcome, extension, prompt_progress
from splashpy.server.streaming import event

_SIGNATURE = base64.b64encode(b"splashpy").decode()
_STOP_REASONS = {"length": "max_tokens", "tool_calls": "tool_use"}


class MessageShape:
    """Writes a message and its events."""

    def __init__(self, model: str):
        self._id = new_id("msg_", 24)
        self._model = model
        self._open: Block | None = None
        self._index = -1

    def start(self, outcome: Outcome) -> Iterator[bytes]:
        """The message without content; what was cached is known by now."""
        message = self._message([], None, None, self._usage(outcome))
        yield event({"type": "message_start", "message": message})
        yield self.quiet(None)

    def take(self, outcome: Outcome, event: Cycle | ToolDelta) -> Iterator[bytes]:
        """Deltas of the block that is being written; blocks never overlap."""
        if isinstance(event, ToolDelta):
            block = outcome.call(event.index)
            yield from self._enter(block)
            if event.args_delta:
                delta = {"type": "input_json_delta", "partial_json": event.args_delta}
                yield self._delta(delta)
            if event.ended:
                yield from self._leave()
            return
        for piece in event.pieces:
            if piece.channel == "r":
                yield from self._enter(Block("reasoning"))
                yield self._delta({"type": "thinking_delta", "thinking": piece.text})
            elif piece.channel == "c":
                yield from self._enter(Block("text"))
                yield self._delta({"type": "text_delta", "text": piece.text})

    def quiet(self, progress: Prefill | None) -> bytes:
        """A ping."""
        told = _progress(progress)
        return event({"type": "ping", **told})

    def end(self, outcome: Outcome) -> Iterator[bytes]:
        """Why it ended, and the counts."""
        yield from self._leave()
        if self._index < 0:
            yield from self._enter(Block("text"))
            yield from self._leave()
        reason, sequence = _stop(outcome)
        delta = {"stop_reason": reason, "stop_sequence": sequence}
        usage = self._usage(outcome)
        yield event({"type": "message_delta", "delta": delta, "usage": usage})

    def close(self, outcomes: list[Outcome]) -> Iterator[bytes]:
        """The end."""
        yield event({"type": "message_stop"})

    def fail(self, error: ApiError) -> Iterator[bytes]:
        """The error as an event."""
        yield event({**error.fields(Dialect.ANTHROPIC)} | {"type": "error"})

    def body(self, outcomes: list[Outcome]) -> Any:
        """The whole answer."""
        outcome = outcomes[0]
        assert outcome.done is not None
        content = [_block(block) for block in outcome.shown]
        reason, sequence = _stop(outcome)
        return {
            **self._message(
                content or [{"type": "text", "text": ""}],
                reason,
                sequence,
                self._usage(outcome),
            ),
            "splashpy": extension(outcome.done),
        }

    def _message(
        self, content: list[Any], reason: str | None, sequence: str | None, usage: Any
    ) -> dict[str, Any]:
        return {
            "id": self._id,
            "type": "message",
            "role": "assistant",
            "model": self._model,
            "content": content,
            "stop_reason": reason,
            "stop_sequence": sequence,
            "usage": usage,
        }

    def _usage(self, outcome: Outcome) -> dict[str, int]:
        done, prefill = outcome.done, outcome.prefill
        if done is not None:
            prompt, cached = done.usage.prompt, done.usage.cached
            written = done.usage.completion
        else:
            prompt = prefill.total if prefill else 0
            cached, written = (prefill.cached if prefill else 0), 1
        return {
            "input_tokens": prompt - cached,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": cached,
            "output_tokens": written,
        }

    def _enter(self, block: Block) -> Iterator[bytes]:
        """Begin a block where another kind, or another call, was written."""
        now = self._open
        if now is not None and (now.kind, now.index) == (block.kind, block.index):
            return
        yield from self._leave()
        self._open = block
        self._index += 1
        yield event(
            {
                "type": "content_block_start",
                "index": self._index,
                "content_block": _empty(block),
            }
        )

    def _leave(self) -> Iterator[bytes]:
        block, self._open = self._open, None
        if block is None:
            return
        if block.kind == "reasoning":
            yield self._delta({"type": "signature_delta", "signature": _SIGNATURE})
        yield event({"type": "content_block_stop", "index": self._index})

    def _delta(self, delta: dict[str, Any]) -> bytes:
        return event(
            {"type": "content_block_delta", "index": self._index, "delta": delta}
        )


def _empty(block: Block) -> dict[str, Any]:
    if block.kind == "reasoning":
        return {"type": "thinking", "thinking": "", "signature": ""}
    if block.kind == "text":
        return {"type": "text", "text": ""}
    return {"type": "tool_use", "id": block.call_id, "name": block.name, "input": {}}


def _block(block: Block) -> dict[str, Any]:
    if block.kind == "reasoning":
        return {
            "type": "thinking",
            "thinking": block.text,
            "signature": _SIGNATURE,
        }
    if block.kind == "text":
        return {"type": "text", "text": block.text}
    return {**_empty(block), "input": json.loads(block.text)}


def _stop(outcome: Outcome) -> tuple[str, str | None]:
    finish = outcome.finish
    stop = outcome.done.stop_text if outcome.done else ""
    if finish == "stop" and stop:
        return "stop_sequence", stop
    return _STOP_REASONS.get(finish, "end_turn"), None


def _progress(prefill: Prefill | None) -> dict[str, Any]:
    return {} if prefill is None else {"prompt_progress": prompt_progress(prefill)}
