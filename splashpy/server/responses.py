# SPDX-License-Identifier: Apache-2.0
"""OpenAI Responses: what clients send, and the answers that are remembered."""

from __future__ import annotations

import hashlib
import json
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Any

from splashpy.protocol import Generate
from splashpy.server.constraints import read_nested
from splashpy.server.endpoint import Endpoint, with_defaults
from splashpy.server.engine import new_id
from splashpy.server.errors import ApiError, to_json
from splashpy.server.exchange import Ask
from splashpy.server.fields import Fields
from splashpy.server.logprobs import read_response
from splashpy.server.reading import (
    media,
    read_budget,
    read_effort,
    read_reasoning_budget,
    read_sampling,
    unsupported,
)
from splashpy.server.response_shape import ResponseShape
from splashpy.server.tools import (
    Offer,
    check_offer,
    function_tool,
    read_choice,
)

STORE_BYTES = 64 << 20
_LONGEST_NAME = 64
_MEDIA = ("input_image", "input_file", "input_audio", "image_url")
_CALLS = ("function_call", "custom_tool_call")
_RESULTS = ("function_call_output", "custom_tool_call_output")


@dataclass(slots=True)
class ResponseStore:
    """Answers by their id, the oldest forgotten first.

    Attributes:
        limit: bytes of JSON that are kept.
    """

    limit: int = STORE_BYTES
    _kept: OrderedDict[str, tuple[int, list[Any], dict[str, Any]]] = field(
        default_factory=OrderedDict
    )
    _bytes: int = 0

    def put(self, items: list[Any], response: dict[str, Any]) -> None:
        """Keep an answer, with the items that led to it and those it consists of."""
        size = len(to_json(items)) + len(to_json(response))
        self._kept[response["id"]] = (size, items, response)
        self._bytes += size
        while self._bytes > self.limit and self._kept:
            _, (oldest, _, _) = self._kept.popitem(last=False)
            self._bytes -= oldest

    def history(self, response_id: str) -> list[Any]:
        """All items up to and including an answer.

        Raises:
            ApiError: it is not kept; clients then send the whole history.
        """
        if response_id not in self._kept:
            raise ApiError(
                "previous_response_not_found",
                f"Previous response with id '{response_id}' not found.",
                param="previous_response_id",
            )
        self._kept.move_to_end(response_id)
        return self._kept[response_id][1]

    def get(self, response_id: str) -> dict[str, Any]:
        """An answer.

        Raises:
            ApiError: it is not kept.
        """
        if response_id not in self._kept:
            raise ApiError("not_found", f"there is no response {response_id!r}")
        return self._kept[response_id][2]

    def delete(self, response_id: str) -> dict[str, Any]:
        """Forget an answer.

        Raises:
            ApiError: it is not kept.
        """
        self.get(response_id)
        size, _, _ = self._kept.pop(response_id)
        self._bytes -= size
        return {"id": response_id, "object": "response", "deleted": True}


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
        progress=body.flag("return_progress") and body.flag("stream"),
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
    messages = list(_messages(items, names))
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


class ToolNames:
    """Names of tools as the model reads them, and as the client knows them."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[str, str]] = {}

    def flat(self, name: str, namespace: str) -> str:
        """One name for a tool within a namespace."""
        if not namespace:
            return name
        joined = f"{namespace}__{name}"
        if len(joined) > _LONGEST_NAME:
            digest = hashlib.sha256(joined.encode()).hexdigest()[:16]
            joined = joined[: _LONGEST_NAME - 16] + digest
        self._known[joined] = (name, namespace)
        return joined

    def original(self, flat: str) -> dict[str, str]:
        """The fields of a call that name its tool."""
        name, namespace = self._known.get(flat, (flat, ""))
        found = {"name": name}
        return found | {"namespace": namespace} if namespace else found


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
    if isinstance(choice, dict) and choice.get("type") == "allowed_tools":
        choice = "required" if choice.get("mode") == "required" else "auto"
    elif isinstance(choice, dict) and choice.get("type") != "function":
        choice = "auto"
    offer = Offer(
        tuple(tools),
        *read_choice(choice),
        parallel=body.flag("parallel_tool_calls", default=True),
    )
    check_offer(offer)
    return offer


def _function(tool: Fields, namespace: str, names: ToolNames) -> dict[str, Any]:
    name = tool.text("name")
    if not name:
        place = tool.where("name")
        raise ApiError("invalid_value", f"{place} is missing", param=place)
    flat = names.flat(name, namespace)
    return function_tool(flat, tool.raw("description"), tool.raw("parameters"))


def input_messages(body: Fields) -> list[dict[str, Any]]:
    """The messages of ``input``, for a chat request that has it instead.

    Raises:
        ApiError: it is neither a text nor a list of items.
    """
    return _messages(_items(body, ResponseStore()), ToolNames())


# --- items ----------------------------------------------------------------------------


def _messages(items: list[Any], names: ToolNames) -> list[dict[str, Any]]:
    """Messages of items; what the assistant did in a row is one message."""
    found: list[dict[str, Any]] = []
    for number, value in enumerate(items):
        place = f"input[{number}]"
        if isinstance(value, str):
            value = {"role": "user", "content": value}
        if not isinstance(value, dict):
            raise ApiError("invalid_value", f"{place} must be an object", param=place)
        item = Fields(value, place)
        kind = item.text("type") or ("message" if item.has("role") else "")
        if kind == "message":
            _add_message(found, item)
        elif kind == "reasoning":
            _assistant(found)["reasoning_content"] = _reasoning(item)
        elif kind in _CALLS:
            _assistant(found).setdefault("tool_calls", []).append(_call(item, names))
        elif kind in _RESULTS:
            found.append(
                {
                    "role": "tool",
                    "tool_call_id": item.text("call_id"),
                    "content": _output(item),
                }
            )
    return found


def _add_message(found: list[dict[str, Any]], item: Fields) -> None:
    role = item.text("role")
    content = _content(item)
    if role == "assistant":
        message = _assistant(found)
        message["content"] += content
        return
    found.append({"role": role, "content": content})


def _assistant(found: list[dict[str, Any]]) -> dict[str, Any]:
    """The assistant's message that is being put together."""
    if not found or found[-1]["role"] != "assistant":
        found.append({"role": "assistant", "content": ""})
    return found[-1]


def _content(item: Fields) -> str:
    value = item.raw("content")
    if value is None or isinstance(value, str):
        return value or ""
    texts = []
    for part in item.objects("content"):
        kind = part.text("type", "text")
        if kind in _MEDIA:
            raise media(kind, part.where("type"))
        text = part.raw("text") if part.has("text") else part.raw("refusal")
        texts.append(text if isinstance(text, str) else "")
    return "".join(texts)


def _reasoning(item: Fields) -> str:
    for name in ("content", "summary"):
        if isinstance(item.raw(name), list):
            text = "".join(part.text("text") for part in item.objects(name))
            if text:
                return text
    return ""


def _call(item: Fields, names: ToolNames) -> dict[str, Any]:
    arguments = item.text("arguments")
    if item.text("type") == "custom_tool_call":
        arguments = json.dumps({"input": item.text("input")}, ensure_ascii=False)
    name = names.flat(item.text("name"), item.text("namespace"))
    return {
        "id": item.text("call_id"),
        "type": "function",
        "function": {"name": name, "arguments": arguments},
    }


def _output(item: Fields) -> str:
    value = item.raw("output")
    if isinstance(value, list):
        return _content(Fields({"content": value}, item.where("output")))
    if isinstance(value, dict):
        return _content(Fields(value, item.where("output")))
    return value if isinstance(value, str) else ""
