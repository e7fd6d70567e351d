# SPDX-License-Identifier: Apache-2.0
"""Anthropic Messages: what clients send."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any, Literal

from splashpy.protocol import Generate, ToolChoice
from splashpy.server.constraints import read_nested
from splashpy.server.endpoint import Endpoint, with_defaults
from splashpy.server.engine import new_id
from splashpy.server.errors import ApiError
from splashpy.server.exchange import Ask
from splashpy.server.fields import Fields
from splashpy.server.message_shape import MessageShape
from splashpy.server.reading import (
    media,
    read_progress,
    read_reasoning_budget,
    read_sampling,
)
from splashpy.server.tools import Offer, check_offer, function_tool

_DEFAULT_TOKENS = 4096
_BILLING = "x-anthropic-billing-header"  # changes with every request; no instruction
_MEDIA = ("image", "document", "input_image", "input_audio", "audio", "video", "file")
_DROPPED = ("redacted_thinking", "server_tool_use", "web_search_tool_result")


def read(body: Fields, endpoint: Endpoint) -> Ask:
    """A body as the engine is asked.

    Raises:
        ApiError: it cannot be answered as asked.
    """
    command = read_command(body, endpoint)
    return Ask(
        commands=(command,),
        shape=MessageShape(endpoint.served_model(body.text("model"))),
        stream=body.flag("stream"),
        progress=read_progress(body),
        call_prefix="toolu_",
    )


def read_command(body: Fields, endpoint: Endpoint) -> Generate:
    """The command of a body; ``max_tokens`` may be missing.

    Raises:
        ApiError: it cannot be answered as asked.
    """
    messages, kept = _messages(body), _kept_thinking(body)
    if isinstance(kept, int):
        _forget_thinking(messages, kept)
    offer = _offer(body)
    output = body.object("output_config")
    place, holder = "output_config.format", output
    if not output.has("format"):
        place, holder = "output_format", body
    form = holder.object(place.rpartition(".")[2])
    effort = _effort(body, output)
    options = {} if kept is None else {"preserve_thinking": True}
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


def _effort(body: Fields, output: Fields) -> str | None:
    """How much to reason; without ``thinking`` not at all."""
    if body.object("thinking").text("type", "disabled") == "disabled":
        return "none"
    return output.text("effort") or None


def _kept_thinking(body: Fields) -> int | Literal["all"] | None:
    """The latest turns whose thoughts stay; None leaves that to the template."""
    found: int | Literal["all"] | None = None
    for edit in body.object("context_management").objects("edits"):
        keep = edit.raw("keep")
        if not edit.text("type").startswith("clear_thinking"):
            continue
        if keep == "all":
            found = "all"
        elif isinstance(keep, dict) and keep.get("type") == "thinking_turns":
            found = edit.object("keep").integer("value", 0)
    return found


def _forget_thinking(messages: list[dict[str, Any]], kept: int) -> None:
    """Drop the thoughts of all turns but the latest."""
    turns = [message for message in messages if "reasoning_content" in message]
    for message in turns[: max(len(turns) - kept, 0)]:
        del message["reasoning_content"]


# --- tools ----------------------------------------------------------------------------


def _offer(body: Fields) -> Offer:
    tools = []
    for tool in body.objects("tools"):
        if tool.text("type", "custom") != "custom":
            continue  # run by Anthropic's own servers
        tools.append(function_tool(tool, "input_schema"))
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
