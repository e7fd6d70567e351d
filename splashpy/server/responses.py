# SPDX-License-Identifier: Apache-2.0
"""OpenAI Responses: what clients send."""

from __future__ import annotations

from typing import Any

from splashpy.protocol import Generate
from splashpy.server.constraints import read_nested
from splashpy.server.endpoint import Endpoint, with_defaults
from splashpy.server.engine import new_id
from splashpy.server.errors import ApiError
from splashpy.server.exchange import Ask
from splashpy.server.fields import Fields
from splashpy.server.logprobs import read_response
from splashpy.server.reading import (
    read_budget,
    read_effort,
    read_progress,
    read_reasoning_budget,
    read_sampling,
    unsupported,
)
from splashpy.server.response_items import ToolNames, to_messages
from splashpy.server.response_shape import ResponseShape
from splashpy.server.response_store import ResponseStore
from splashpy.server.tools import (
    Offer,
    allowed_tools,
    check_offer,
    function_tool,
    read_choice,
    tool_name,
)


def read(body: Fields, endpoint: Endpoint, store: ResponseStore) -> Ask:
    """A body as the engine is asked.

    Raises:
        ApiError: it cannot be answered as asked.
    """
    items = _items(body, store)
    names = ToolNames()
    command = _command(body, endpoint, items, names)
    response = _echoed(body, endpoint)
    kept = store.put if body.flag("store", default=True) else None

    def finished(value: dict[str, Any]) -> None:
        if kept is not None:
            kept([*items, *value["output"]], value)

    return Ask(
        commands=(command,),
        shape=ResponseShape(
            response, names.original, finished, lambda: endpoint.created
        ),
        stream=body.flag("stream"),
        param="input",
        progress=read_progress(body),
        seconds=body.number("timeout", 0.001),
    )


def read_command(body: Fields, endpoint: Endpoint, store: ResponseStore) -> Generate:
    """The command of a body, for counting.

    Raises:
        ApiError: it cannot be answered as asked.
    """
    return _command(body, endpoint, _items(body, store), ToolNames())


def _items(body: Fields, store: ResponseStore) -> list[Any]:
    """The items of the conversation, those that are remembered first."""
    for name in ("conversation", "prompt"):
        if body.has(name):
            raise unsupported(name, "a stored conversation or prompt")
    if body.flag("background"):
        raise unsupported("background", "answering in the background")
    value = body.raw("input")
    if value is None:
        raise ApiError("invalid_value", "input is missing", param="input")
    if isinstance(value, str):
        value = [{"type": "message", "role": "user", "content": value}]
    if not isinstance(value, list):
        raise body.wrong("input", "a text or a list of items", value)
    previous = body.text("previous_response_id")
    return [*(store.history(previous) if previous else []), *value]


def _command(
    body: Fields, endpoint: Endpoint, items: list[Any], names: ToolNames
) -> Generate:
    offer = _offer(body, names)
    messages = list(to_messages(items, names))
    if body.has("instructions"):
        system = {"role": "system", "content": body.text("instructions")}
        messages.insert(0, system)
    effort, options = read_effort(body)
    form = body.object("text").object("format")
    command = Generate(
        id=new_id("", 32),
        messages=tuple(messages) or ({"role": "user", "content": ""},),
        tools=offer.tools,
        tool_choice=offer.choice,
        tool_name=offer.name,
        allowed_tools=offer.allowed,
        parallel_tool_calls=offer.parallel,
        options=options,
        constraint=read_nested(form, "text.format"),
        reasoning_budget=read_reasoning_budget(body),
        logprobs=read_response(body),
        sampling=read_sampling(body),
        effort=effort,
        max_tokens=read_budget(body, "max_output_tokens"),
        foreground=body.raw("priority") == "foreground",
    )
    return with_defaults(endpoint, command)


def _echoed(body: Fields, endpoint: Endpoint) -> dict[str, Any]:
    """The response as it begins, with what the request said of it."""
    reasoning = body.object("reasoning")
    return {
        "id": new_id("resp_", 32),
        "object": "response",
        "created_at": endpoint.created,
        "completed_at": None,
        "status": "in_progress",
        "error": None,
        "incomplete_details": None,
        "instructions": body.text("instructions") or None,
        "max_output_tokens": body.integer("max_output_tokens"),
        "model": endpoint.served_model(body.text("model")),
        "output": [],
        "parallel_tool_calls": body.flag("parallel_tool_calls", default=True),
        "previous_response_id": body.text("previous_response_id") or None,
        "reasoning": {
            "effort": reasoning.text("effort") or None,
            "summary": reasoning.text("summary") or None,
        },
        "store": body.flag("store", default=True),
        "temperature": body.number("temperature"),
        "top_p": body.number("top_p"),
        "text": {"format": body.object("text").mapping("format") or {"type": "text"}},
        "tool_choice": body.raw("tool_choice") or "auto",
        "tools": body.items("tools"),
        "truncation": body.text("truncation") or "disabled",
        "metadata": body.mapping("metadata"),
        "usage": None,
    }


# --- tools ----------------------------------------------------------------------------


def _offer(body: Fields, names: ToolNames) -> Offer:
    tools: list[dict[str, Any]] = []
    for tool in body.objects("tools"):
        kind = tool.text("type", "function")
        if kind == "function":
            tools.append(_function(tool, "", names))
        elif kind == "namespace":
            space = tool.text("name")
            inner = tool.objects("tools")
            tools += [
                _function(item, space, names)
                for item in inner
                if item.text("type", "function") == "function"
            ]
    choice = body.raw("tool_choice")
    kinds = ("function", "allowed_tools")
    if isinstance(choice, dict) and choice.get("type") not in kinds:
        choice = "auto"
    offer = Offer(
        tuple(tools),
        *read_choice(choice),
        parallel=body.flag("parallel_tool_calls", default=True),
        allowed=tuple(
            names.flat(str(tool.get("name")), str(tool.get("namespace") or ""))
            for tool in allowed_tools(choice)
        ),
    )
    check_offer(offer)
    return offer


def _function(tool: Fields, namespace: str, names: ToolNames) -> dict[str, Any]:
    return function_tool(tool, name=names.flat(tool_name(tool), namespace))


def input_messages(body: Fields) -> list[dict[str, Any]]:
    """The messages of ``input``, for a chat request that has it instead.

    Raises:
        ApiError: it is neither a text nor a list of items.
    """
    return to_messages(_items(body, ResponseStore()), ToolNames())
