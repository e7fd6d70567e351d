# SPDX-License-Identifier: Apache-2.0
"""Anthropic Messages."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from splashpy.protocol import Cycle, Generate, Prefill, ToolChoice, ToolDelta
from splashpy.server.constraints import read_nested
from splashpy.server.endpoint import Endpoint, with_defaults
from splashpy.server.engine import new_id
from splashpy.server.errors import ApiError, Dialect
from splashpy.server.exchange import Ask
from splashpy.server.fields import Fields
from splashpy.server.outcome import Block, Outcome, extension, prompt_progress
from splashpy.server.reading import media, read_reasoning_budget, read_sampling
from splashpy.server.streaming import event
from splashpy.server.tools import Offer, check_offer, function_tool

_DEFAULT_TOKENS = 4096
_BILLING = "x-anthropic-billing-header"  # changes with every request; no instruction
_SIGNATURE = base64.b64encode(b"splashpy").decode()
_MEDIA = ("image", "document", "input_image", "input_audio", "audio", "video", "file")
_DROPPED = ("redacted_thinking", "server_tool_use", "web_search_tool_result")
_STOP_REASONS = {"length": "max_tokens", "tool_calls": "tool_use"}


def read(body: Fields, endpoint: Endpoint) -> Ask:
    """A body as the engine is asked.

    Raises:
        ApiError: it cannot be answered as asked.
    """
    command = read_command(body, endpoint)
    stream = body.flag("stream")
    told = body.flag("return_progress")
    if told and not stream:
        raise ApiError(
            "invalid_value", "return_progress needs stream", param="return_progress"
        )
    return Ask(
        commands=(command,),
        shape=MessageShape(endpoint.served_model(body.text("model"))),
        stream=stream,
        progress=told,
        call_prefix="toolu_",
    )


def read_command(body: Fields, endpoint: Endpoint) -> Generate:
    """The command of a body; ``max_tokens`` may be missing.

    Raises:
        ApiError: it cannot be answered as asked.
    """
    messages = _messages(body)
    offer = _offer(body)
    output = body.object("output_config")
    place, holder = "output_config.format", output
    if not output.has("format"):
        place, holder = "output_format", body
    form = holder.object(place.rpartition(".")[2])
    effort, options = _thinking(body, output)
    sampling = read_sampling(body, stops="stop_sequences")
    stops = tuple(stop for stop in sampling.stop if stop.strip())
    command = Generate(
        id=new_id("", 32),
        messages=tuple(messages),
        tools=offer.tools,
        tool_choice=offer.choice,
        tool_name=offer.name,
        parallel_tool_calls=offer.parallel,
        options=options,
        constraint=read_nested(form, place),
        reasoning_budget=read_reasoning_budget(body),
        continue_final=messages[-1]["role"] == "assistant",
        sampling=replace(sampling, stop=stops),
        effort=effort,
        max_tokens=body.integer("max_tokens", 1) or _DEFAULT_TOKENS,
        foreground=body.raw("priority") == "foreground",
    )
    return with_defaults(endpoint, command)


def _thinking(body: Fields, output: Fields) -> tuple[str | None, dict[str, Any]]:
    """Effort and template variables; without ``thinking`` there is none."""
    thinking = body.object("thinking")
    kind = thinking.text("type", "disabled")
    options: dict[str, Any] = {}
    edits = body.object("context_management").objects("edits")
    for edit in edits:
        if edit.text("type").startswith("clear_thinking") and edit.raw("keep") == "all":
            options["preserve_thinking"] = True
    if kind == "disabled":
        return "none", options
    return output.text("effort") or None, options


# --- tools ----------------------------------------------------------------------------


def _offer(body: Fields) -> Offer:
    tools = []
    for tool in body.objects("tools"):
        if tool.text("type", "custom") != "custom":
            continue  # run by Anthropic's own servers
        name = tool.text("name")
        if not name:
            place = tool.where("name")
            raise ApiError("invalid_value", f"{place} is missing", param=place)
        schema = tool.raw("input_schema")
        tools.append(function_tool(name, tool.raw("description"), schema))
    choice = body.object("tool_choice")
    kind = choice.text("type", "auto")
    words: dict[str, ToolChoice] = {"any": "required", "tool": "required"}
    words |= {"none": "none", "auto": "auto"}
    if kind not in words:
        raise choice.wrong("type", "auto, any, tool or none", kind)
    offer = Offer(
        tuple(tools),
        words[kind],
        choice.text("name") if kind == "tool" else "",
        not choice.flag("disable_parallel_tool_use"),
    )
    check_offer(offer)
    return offer


# --- messages -------------------------------------------------------------------------


def _messages(body: Fields) -> list[dict[str, Any]]:
    found = _system(body)
    turns = list(body.objects("messages"))
    if not turns:
        raise ApiError("invalid_value", "messages is empty", param="messages")
    for turn in turns:
        role = turn.text("role")
        if role == "assistant":
            found.append(_assistant(turn))
        elif role in ("user", "system"):
            found += _user(turn, role)
        else:
            raise turn.wrong("role", "user, assistant or system", role)
    return found


def _system(body: Fields) -> list[dict[str, Any]]:
    value = body.raw("system")
    if value is None:
        return []
    if isinstance(value, str):
        texts = [value]
    else:
        texts = [block.text("text") for block in body.objects("system")]
    kept = [text for text in texts if text and not text.startswith(_BILLING)]
    return [{"role": "system", "content": "\n\n".join(kept)}] if kept else []


def _blocks(turn: Fields) -> list[Fields]:
    content = turn.raw("content")
    if content is None:
        return []
    if isinstance(content, str):
        return [Fields({"type": "text", "text": content}, turn.where("content"))]
    return list(turn.objects("content"))


def _user(turn: Fields, role: str) -> list[dict[str, Any]]:
    """Results of tools, each a message of its own, then the text of the turn."""
    results, texts = [], []
    for block in _blocks(turn):
        kind = block.text("type", "text")
        if kind in _MEDIA:
            raise media(kind, block.where("type"))
        if kind == "tool_result":
            results.append(_result(block))
        else:
            texts.append(_text(block))
    found = [text for text in texts if text]
    if found or not results:
        results.append({"role": role, "content": "".join(found)})
    return results


def _result(block: Fields) -> dict[str, Any]:
    texts = []
    for part in _blocks(block):
        kind = part.text("type", "text")
        if kind in _MEDIA:
            raise media(kind, part.where("type"))
        texts.append(_text(part))
    content = "".join(texts)
    if block.flag("is_error"):
        content = f"Tool execution failed:\n{content}"
    return {
        "role": "tool",
        "tool_call_id": block.text("tool_use_id"),
        "content": content,
    }


def _assistant(turn: Fields) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": ""}
    reasoning, calls = [], []
    for block in _blocks(turn):
        kind = block.text("type", "text")
        if kind == "thinking":
            reasoning.append(block.text("thinking"))
        elif kind == "tool_use":
            arguments = json.dumps(block.mapping("input"), ensure_ascii=False)
            function = {"name": block.text("name"), "arguments": arguments}
            call = {"id": block.text("id"), "type": "function", "function": function}
            calls.append(call)
        elif kind not in _DROPPED:
            message["content"] += _text(block)
    if any(reasoning):
        message["reasoning_content"] = "\n".join(reasoning)
    if calls:
        message["tool_calls"] = calls
    return message


def _text(block: Fields) -> str:
    """The text of a block of any kind; of a search result, that of its parts."""
    if block.text("type", "text") == "search_result":
        return "".join(part.text("text") for part in _blocks(block))
    value = block.raw("text")
    return value if isinstance(value, str) else ""


# --- the answer -----------------------------------------------------------------------


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
