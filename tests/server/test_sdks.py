# SPDX-License-Identifier: Apache-2.0
"""The SDKs people use, unmodified."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import anthropic
import openai
import pytest
from scripted_engine import CONTEXT, Script
from server_kit import Running

HI: Any = [{"role": "user", "content": "hi"}]
CALL = (
    "<tool_call>\n<function=look>\n<parameter=where>\nhere\n</parameter>\n"
    "</function>\n</tool_call>"
)
SCHEMA = {"type": "object", "properties": {"where": {"type": "string"}}}
OPENAI_TOOLS: Any = [
    {"type": "function", "function": {"name": "look", "parameters": SCHEMA}}
]


@pytest.fixture
def client(server: Running) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(
        base_url=f"{server.url}/v1", api_key="k", max_retries=0
    ) as client:
        yield client


@pytest.fixture
def claude(server: Running) -> Iterator[anthropic.Anthropic]:
    with anthropic.Anthropic(base_url=server.url, api_key="k", max_retries=0) as client:
        yield client


def test_openai_lists_models(client: openai.OpenAI) -> None:
    names = [model.id for model in client.models.list()]

    assert names == ["maker/tiny", "tiny"]
    assert client.models.retrieve("maker/tiny").owned_by == "splashpy"


def test_openai_chats(client: openai.OpenAI, script: Script) -> None:
    script.say("Hm.</think>Paris.<|im_end|>")

    whole = client.chat.completions.create(model="local", messages=HI)
    chunks = list(
        client.chat.completions.create(
            model="local",
            messages=HI,
            stream=True,
            stream_options={"include_usage": True},
        )
    )

    assert whole.choices[0].message.content == "Paris."
    assert whole.choices[0].message.model_extra == {"reasoning_content": "Hm."}
    said = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
    assert said == "Paris."
    assert chunks[-1].choices == []
    assert chunks[-1].usage is not None
    assert whole.usage is not None
    assert chunks[-1].usage.completion_tokens == whole.usage.completion_tokens


def test_openai_calls_a_tool_and_goes_on(client: openai.OpenAI, script: Script) -> None:
    script.say(f"</think>{CALL}<|im_end|>")
    with client.chat.completions.stream(
        model="local", messages=HI, tools=OPENAI_TOOLS
    ) as stream:
        message = stream.get_final_completion().choices[0].message
    assert message.tool_calls is not None
    (call,) = message.tool_calls
    assert call.function.arguments == '{"where":"here"}'
    script.say("</think>Found it.<|im_end|>")
    history: Any = [
        *HI,
        message.model_dump(exclude_none=True),
        {"role": "tool", "tool_call_id": call.id, "content": "a treasure"},
    ]

    answer = client.chat.completions.create(
        model="local", messages=history, tools=OPENAI_TOOLS
    )

    assert answer.choices[0].message.content == "Found it."


def test_openai_completes_and_fills(client: openai.OpenAI, script: Script) -> None:
    script.say("x + 1<|im_end|>")

    filled = client.completions.create(model="local", prompt="return ", suffix="\n")

    assert filled.choices[0].text == "x + 1"


def test_openai_responds(client: openai.OpenAI, script: Script) -> None:
    script.say(f"Hm.</think>Look:{CALL}<|im_end|>")
    tools: Any = [{"type": "function", "name": "look", "parameters": SCHEMA}]

    whole = client.responses.create(model="local", input="hi", tools=tools)
    with client.responses.stream(model="local", input="hi", tools=tools) as stream:
        kinds = [event.type for event in stream]
        final = stream.get_final_response()

    assert [item.type for item in whole.output] == [
        "reasoning",
        "message",
        "function_call",
    ]
    assert whole.output_text == final.output_text == "Look:"
    assert kinds[0] == "response.created"
    assert kinds[-1] == "response.completed"
    assert whole.usage is not None
    again = client.responses.create(
        model="local", input="and?", previous_response_id=whole.id
    )
    assert again.previous_response_id == whole.id


def test_openai_reads_the_errors(
    client: openai.OpenAI, serve: Any, script: Script
) -> None:
    long: Any = [{"role": "user", "content": "x" * CONTEXT}]
    with pytest.raises(openai.BadRequestError) as too_long:
        client.chat.completions.create(model="local", messages=long)
    with pytest.raises(openai.BadRequestError) as unknown:
        client.responses.create(
            model="local", input="x", previous_response_id="resp_unknown"
        )
    assert too_long.value.code == "context_length_exceeded"
    assert unknown.value.code == "previous_response_not_found"
    locked = serve(key="s3cret")
    with (
        openai.OpenAI(base_url=f"{locked.url}/v1", api_key="wrong") as stranger,
        pytest.raises(openai.AuthenticationError),
    ):
        stranger.models.list()


def test_anthropic_talks(claude: anthropic.Anthropic, script: Script) -> None:
    script.say(f"Hm.</think>Look:{CALL}<|im_end|>", cached=3)
    asked: Any = {
        "model": "local",
        "max_tokens": 2000,
        "messages": HI,
        "tools": [{"name": "look", "input_schema": SCHEMA}],
        "thinking": {"type": "enabled", "budget_tokens": 1024},
    }

    whole = claude.messages.create(**asked)
    with claude.messages.stream(**asked) as stream:
        final = stream.get_final_message()

    for message in (whole, final):
        thinking, text, call = message.content
        assert thinking.type == "thinking"
        assert thinking.thinking == "Hm."
        assert text.type == "text"
        assert text.text == "Look:"
        assert call.type == "tool_use"
        assert call.input == {"where": "here"}
        assert message.stop_reason == "tool_use"
        assert message.usage.cache_read_input_tokens == 3
    assert whole.usage.output_tokens == final.usage.output_tokens


def test_anthropic_counts_and_lists(
    claude: anthropic.Anthropic, script: Script
) -> None:
    count = claude.messages.count_tokens(model="local", messages=HI)
    claude.messages.create(model="local", max_tokens=10, messages=HI)

    assert count.input_tokens == len(script.requests[0].token_ids)
    assert next(iter(claude.models.list())).id == "maker/tiny"


def test_anthropic_reads_the_errors(claude: anthropic.Anthropic) -> None:
    long: Any = [{"role": "user", "content": "x" * CONTEXT}]

    with pytest.raises(anthropic.BadRequestError) as error:
        claude.messages.create(model="local", max_tokens=10, messages=long)

    assert error.value.body is not None
    assert "prompt is too long: " in str(error.value.body)
