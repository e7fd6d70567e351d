# SPDX-License-Identifier: Apache-2.0
"""Flows of the anthropic SDK: ``anthropic_flows.py FLOW URL`` prints the result."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

import anthropic
from anthropic import Anthropic

HI: Any = [{"role": "user", "content": "hi"}]
TOO_LONG: Any = [{"role": "user", "content": "x" * 400_000}]
SCHEMA = {"type": "object", "properties": {"where": {"type": "string"}}}
ASKED: Any = {
    "model": "local",
    "max_tokens": 2000,
    "messages": HI,
    "tools": [{"name": "look", "input_schema": SCHEMA}],
    "thinking": {"type": "enabled", "budget_tokens": 1024},
}


def summary(message: Any) -> Any:
    kept = ("type", "thinking", "text", "name", "input")
    blocks = [block.model_dump(include=kept) for block in message.content]
    usage = message.usage
    return {
        "blocks": blocks,
        "stop": message.stop_reason,
        "usage": [usage.cache_read_input_tokens, usage.output_tokens],
    }


def create(client: Anthropic) -> Any:
    return summary(client.messages.create(**ASKED))


def stream(client: Anthropic) -> Any:
    with client.messages.stream(**ASKED) as events:
        said = "".join(events.text_stream)
        return {**summary(events.get_final_message()), "said": said}


def count(client: Anthropic) -> Any:
    return client.messages.count_tokens(model="local", messages=HI).input_tokens


def models(client: Anthropic) -> Any:
    return [model.id for model in client.models.list()]


def too_long(client: Anthropic) -> Any:
    try:
        client.messages.create(model="local", max_tokens=10, messages=TOO_LONG)
    except anthropic.BadRequestError as error:
        body: Any = error.body
        return body["error"]["message"]


FLOWS: tuple[Callable[[Anthropic], Any], ...] = (
    create,
    stream,
    count,
    models,
    too_long,
)

if __name__ == "__main__":
    wanted, url = sys.argv[1:]
    flow = next(flow for flow in FLOWS if flow.__name__ == wanted)
    with Anthropic(base_url=url, api_key="k", max_retries=0) as connected:
        print(json.dumps(flow(connected)))
