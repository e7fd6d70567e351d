# SPDX-License-Identifier: Apache-2.0
"""A model whose channels are tags of several control tokens: Kimi K3."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from dialect_kit import FUNCTION, HI, TOOLS
from scripted_engine import Script, write_speaker
from server_kit import Running, until

CONTROLS = ("<|open|>", "<|close|>", "<|sep|>", "<|end_of_msg|>")
TEMPLATE = (
    "{# <|close|>call #}{% if tools %}{{ tools | tojson }}{% endif %}"
    "{% for message in messages %}<|open|>message role={{ message.role }}<|sep|>"
    "{{ message.content }}<|close|>message<|sep|><|end_of_msg|>{% endfor %}"
    "{% if add_generation_prompt %}<|open|>message role=assistant<|sep|><|open|>"
    "{% if enable_thinking is defined and not enable_thinking %}response"
    "{% else %}think{% endif %}<|sep|>{% endif %}"
)
THOUGHT = "Hm.<|close|>think<|sep|>"
CALL = (
    '<|open|>tools<|sep|><|open|>call tool="look" index="1"<|sep|><|open|>argument '
    'key="where" type="string"<|sep|>here<|close|>argument<|sep|><|close|>call<|sep|>'
    "<|close|>tools<|sep|>"
)
END = "<|close|>message<|sep|><|im_end|>"
PATH = "/v1/chat/completions"


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory, start: Any) -> Iterator[Running]:
    directory = tmp_path_factory.mktemp("kimi")
    server = start(write_speaker(directory, TEMPLATE, controls=CONTROLS))
    yield server.wait_ready()
    server.__exit__()
    assert server.faults == []


@pytest.fixture
def kimi(own: Running, script: Script) -> Iterator[Running]:
    yield own
    until(lambda: own.endpoint.active == 0)


def message(server: Running, **fields: Any) -> dict[str, Any]:
    reply = server.post(PATH, {"messages": HI, **fields})
    assert reply.status == 200, reply.body
    return reply.json["choices"][0]["message"]


def ids_of(server: Running, text: str) -> list[int]:
    return server.post("/tokenize", {"content": text}).json["tokens"]


def test_thoughts_answer_and_calls_are_told_apart(
    kimi: Running, script: Script
) -> None:
    answer = "<|open|>response<|sep|>Paris.<|close|>response<|sep|>"
    script.say(THOUGHT + answer + CALL + END)

    said = message(kimi, tools=TOOLS)

    assert (said["reasoning_content"], said["content"]) == ("Hm.", "Paris.")
    (call,) = said["tool_calls"]
    assert call["function"] == {"name": "look", "arguments": '{"where":"here"}'}


def test_without_thoughts_the_answer_is_the_response(
    kimi: Running, script: Script
) -> None:
    script.say("Paris.<|close|>response<|sep|>" + END)

    said = message(kimi, enable_thinking=False)

    assert said == {"role": "assistant", "content": "Paris."}


def test_a_begun_answer_goes_on_in_the_response(kimi: Running, script: Script) -> None:
    script.say(" it is.<|close|>response<|sep|>" + END)
    begun = [*HI, {"role": "assistant", "content": "Paris"}]

    said = message(kimi, messages=begun, continue_final_message=True)

    assert said["content"] == " it is."
    tail = ids_of(kimi, THOUGHT[3:] + "<|open|>response<|sep|>Paris")
    assert list(script.requests[-1].token_ids[-len(tail) :]) == tail


@pytest.mark.parametrize(
    ("asked", "good", "bad"),
    [
        (
            {"tools": TOOLS, "tool_choice": "required"},
            CALL.replace("look", FUNCTION["name"]),
            "<|open|>response<|sep|>",
        ),
        (
            {"response_format": {"type": "json_object"}},
            '<|open|>response<|sep|>{"a": 1}',
            "<|open|>response<|sep|>a",
        ),
    ],
    ids=["call", "form"],
)
def test_what_an_answer_must_be_begins_after_the_thoughts(
    kimi: Running, script: Script, asked: dict[str, Any], good: str, bad: str
) -> None:
    script.say(THOUGHT + END)
    kimi.post(PATH, {"messages": HI, **asked})

    grammar = script.requests[-1].grammar

    assert grammar is not None
    for text, legal in ((good, True), (bad, False)):
        ids = ids_of(kimi, "I {" + THOUGHT + text)
        assert (grammar.legal(ids) == len(ids)) is legal, text
