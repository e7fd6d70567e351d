# SPDX-License-Identifier: Apache-2.0
"""Flows of the openai SDK: ``openai_flows.py FLOW URL`` prints what came of one."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

import openai
from openai import OpenAI
from pydantic import BaseModel

HI: Any = [{"role": "user", "content": "hi"}]
SCHEMA = {"type": "object", "properties": {"where": {"type": "string"}}}
LOOK: Any = {"type": "function", "function": {"name": "look", "parameters": SCHEMA}}
TOO_LONG: Any = [{"role": "user", "content": "x" * 400_000}]


class Dog(BaseModel):
    """What an answer is read into."""

    name: str
    age: int


def models(client: OpenAI) -> Any:
    return [model.id for model in client.models.list()]


def chat(client: OpenAI) -> Any:
    answer = client.chat.completions.create(model="local", messages=HI)
    return answer.choices[0].message.model_dump(exclude_none=True)


def stream(client: OpenAI) -> Any:
    chunks = list(
        client.chat.completions.create(
            model="local",
            messages=HI,
            stream=True,
            stream_options={"include_usage": True},
        )
    )
    said = [c.choices[0].delta.content or "" for c in chunks if c.choices]
    last = chunks[-1]
    usage = last.usage.completion_tokens if last.usage else None
    return {"said": "".join(said), "choices": len(last.choices), "usage": usage}


def tools(client: OpenAI) -> Any:
    with client.chat.completions.stream(
        model="local", messages=HI, tools=[LOOK]
    ) as events:
        message = events.get_final_completion().choices[0].message
    call = (message.tool_calls or [])[0]
    result: Any = {"role": "tool", "tool_call_id": call.id, "content": "a treasure"}
    history: Any = [*HI, message.model_dump(exclude_none=True), result]
    answer = client.chat.completions.create(
        model="local", messages=history, tools=[LOOK]
    )
    return [call.function.arguments, answer.choices[0].message.content]


def parsed(client: OpenAI) -> Any:
    answer = client.chat.completions.parse(
        model="local", messages=HI, response_format=Dog
    )
    dog = answer.choices[0].message.parsed
    return dog.model_dump() if dog else None


def completion(client: OpenAI) -> Any:
    filled = client.completions.create(model="local", prompt="return ", suffix="\n")
    return filled.choices[0].text


def response(client: OpenAI) -> Any:
    answer = client.responses.create(model="local", input="hi")
    return [answer.status, answer.output_text]


def events(client: OpenAI) -> Any:
    with client.responses.stream(model="local", input="hi") as stream:
        return [event.type for event in stream]


def conversation(client: OpenAI) -> Any:
    first = client.responses.create(model="local", input="one")
    second = client.responses.create(
        model="local", input="two", previous_response_id=first.id
    )
    client.responses.create(
        model="local", input="three", previous_response_id=second.id
    )
    try:
        client.responses.create(
            model="local", input="four", previous_response_id="resp_unknown"
        )
    except openai.BadRequestError as error:
        return error.code


def too_long(client: OpenAI) -> Any:
    try:
        client.chat.completions.create(model="local", messages=TOO_LONG)
    except openai.BadRequestError as error:
        return error.code


def wrong_key(client: OpenAI) -> Any:
    try:
        client.models.list()
    except openai.AuthenticationError as error:
        return error.code


FLOWS: tuple[Callable[[OpenAI], Any], ...] = (
    models,
    chat,
    stream,
    tools,
    parsed,
    completion,
    response,
    events,
    conversation,
    too_long,
    wrong_key,
)

if __name__ == "__main__":
    wanted, url = sys.argv[1:]
    flow = next(flow for flow in FLOWS if flow.__name__ == wanted)
    with OpenAI(base_url=f"{url}/v1", api_key="k", max_retries=0) as connected:
        print(json.dumps(flow(connected)))
