# SPDX-License-Identifier: Apache-2.0
"""Ollama's ``/api/chat`` and ``/api/generate``: bodies as the engine is asked.

Answers are streams unless a request says otherwise. A request without a prompt asks
that the model be loaded, which it is.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from splashpy.protocol import Constraint, Generate, Infill, Sampling
from splashpy.server.endpoint import Endpoint, with_defaults
from splashpy.server.engine import new_id
from splashpy.server.errors import ApiError
from splashpy.server.exchange import Ask
from splashpy.server.fields import Fields
from splashpy.server.logprobs import read_chat as read_logprobs
from splashpy.server.ollama_shape import OllamaShape, Text, chat_text, generate_text
from splashpy.server.reading import (
    media,
    no_gaps,
    read_sampling,
)
from splashpy.server.streaming import LINES
from splashpy.server.tools import read_offer

_IGNORED = ("keep_alive", "truncate", "shift", "template", "context")


def read_chat(body: Fields, endpoint: Endpoint) -> Ask | dict[str, Any]:
    """A body of ``/api/chat``; without messages, the answer itself.

    Raises:
        ApiError: it cannot be answered as asked.
    """
    messages = [_message(item) for item in body.objects("messages")]
    if not messages:
        return _loaded(body, endpoint, chat_text)
    offer = read_offer(body)
    command = Generate(
        id=new_id("", 32),
        messages=tuple(messages),
        tools=offer.tools,
        tool_choice=offer.choice,
        tool_name=offer.name,
        allowed_tools=offer.allowed,
        parallel_tool_calls=offer.parallel,
        continue_final=messages[-1]["role"] == "assistant",
        constraint=_form(body),
        **_common(body),
    )
    return _ask(body, endpoint, command, chat_text)


def read_generate(body: Fields, endpoint: Endpoint) -> Ask | dict[str, Any]:
    """A body of ``/api/generate``; without a prompt, the answer itself.

    Raises:
        ApiError: it cannot be answered as asked.
    """
    prompt, suffix = body.text("prompt"), body.text("suffix")
    if not prompt and not suffix:
        return _loaded(body, endpoint, generate_text)
    if body.items("images"):
        raise media("image", "images")
    fields = _common(body)
    if suffix:
        facts = endpoint.engine.facts
        if facts is None or not facts.infill:
            raise no_gaps("suffix")
        fields["infill"] = Infill(prefix=prompt, suffix=suffix)
        fields["foreground"] = True
    elif body.flag("raw"):
        fields["prompt"] = prompt
    else:
        system = body.text("system")
        leading = [{"role": "system", "content": system}] if system else []
        fields["messages"] = (*leading, {"role": "user", "content": prompt})
    command = Generate(
        id=new_id("", 32),
        constraint=_form(body),
        **fields,
    )
    return _ask(body, endpoint, command, generate_text)


def _ask(body: Fields, endpoint: Endpoint, command: Generate, text: Text) -> Ask:
    command = replace(command, logprobs=read_logprobs(body))
    body.ignore(*_IGNORED)
    return Ask(
        commands=(with_defaults(endpoint, command),),
        shape=OllamaShape(endpoint, _model(body, endpoint), text),
        stream=body.flag("stream", default=True),
        param="prompt" if text is generate_text else "messages",
        media=LINES,
    )


def _loaded(body: Fields, endpoint: Endpoint, text: Text) -> dict[str, Any]:
    shape = OllamaShape(endpoint, _model(body, endpoint), text)
    unload = body.raw("keep_alive") in (0, "0")
    return shape.loaded("unload" if unload else "load")


def _model(body: Fields, endpoint: Endpoint) -> str:
    """The name an answer carries; one without its tag is the same name."""
    asked = body.text("model")
    endpoint.served_model(asked.removesuffix(":latest"))
    return asked or endpoint.served_model("")


def _common(body: Fields) -> dict[str, Any]:
    """Fields of a command that both endpoints fill in the same way."""
    options = body.object("options")
    most = options.integer("num_predict")
    effort, variables = _think(body)
    return {
        "sampling": _sampling(options),
        "max_tokens": most if most is not None and most > 0 else None,
        "effort": effort,
        "options": variables,
    }


def _sampling(options: Fields) -> Sampling:
    found = read_sampling(options)
    if options.integer("repeat_last_n") == 0:
        # Ollama's way to switch the penalties off.
        found = replace(
            found,
            repetition_penalty=None,
            presence_penalty=None,
            frequency_penalty=None,
            penalty_window=None,
        )
    return found


def _form(body: Fields) -> Constraint | None:
    """What ``format`` asks for: the word ``json``, or a schema."""
    value = body.raw("format")
    if value is None or value == "":
        return None
    if value == "json":
        return Constraint(kind="json_object", place="format")
    if not isinstance(value, dict):
        raise body.wrong("format", "json or a schema", value)
    schema = json.dumps(value, ensure_ascii=False)
    return Constraint(kind="json_schema", text=schema, place="format")


def _think(body: Fields) -> tuple[str | None, dict[str, Any]]:
    """Reasoning effort and template variables of ``think``: a flag or an effort."""
    value = body.raw("think")
    if value is None or value == "":
        return None, {}
    if isinstance(value, str):
        return value, {}
    if not isinstance(value, bool):
        raise body.wrong("think", "true, false or an effort", value)
    return (
        (None, {"enable_thinking": True, "thinking": True}) if value else ("none", {})
    )


def _message(item: Fields) -> dict[str, Any]:
    """A message as OpenAI writes it."""
    role = item.text("role")
    if not role:
        raise ApiError(
            "invalid_value",
            f"{item.where('role')} is missing",
            param=item.where("role"),
        )
    if item.items("images"):
        raise media("image", item.where("images"))
    message: dict[str, Any] = {"role": role, "content": item.text("content")}
    for name, known_as in (
        ("thinking", "reasoning_content"),
        ("tool_call_id", "tool_call_id"),
        ("tool_name", "name"),
    ):
        if item.text(name):
            message[known_as] = item.text(name)
    calls = [_call(call) for call in item.objects("tool_calls")]
    if calls:
        message["tool_calls"] = calls
    return message


def _call(call: Fields) -> dict[str, Any]:
    """A call of the history; its arguments are an object here, and text for OpenAI."""
    function = call.object("function")
    arguments = function.raw("arguments")
    if not isinstance(arguments, str):
        arguments = json.dumps(function.mapping("arguments"), ensure_ascii=False)
    found = {"name": function.text("name"), "arguments": arguments}
    return {"id": call.text("id"), "type": "function", "function": found}
