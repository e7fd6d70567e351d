# SPDX-License-Identifier: Apache-2.0
"""Items of OpenAI Responses as the messages they stand for."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from splashpy.server.errors import ApiError
from splashpy.server.fields import Fields
from splashpy.server.reading import media

_LONGEST_NAME = 64
_MEDIA = ("input_image", "input_file", "input_audio", "image_url")
_CALLS = ("function_call", "custom_tool_call")
_RESULTS = ("function_call_output", "custom_tool_call_output")


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


def to_messages(items: list[Any], names: ToolNames) -> list[dict[str, Any]]:
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
