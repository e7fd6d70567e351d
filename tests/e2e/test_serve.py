# SPDX-License-Identifier: Apache-2.0
"""The demo model behind the real endpoint."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import openai
import pytest

pytestmark = pytest.mark.e2e

# Short prompts and answers: with the reference BLAS a token takes a tenth of a second.
ASKED: Any = {
    "model": "demo",
    "messages": [{"role": "user", "content": "Say the alphabet."}],
    "temperature": 0,
    "max_tokens": 12,
}
PLACE = {
    "type": "object",
    "properties": {"city": {"enum": ["Paris", "Rome"]}},
    "required": ["city"],
    "additionalProperties": False,
}
TOOL: Any = {"type": "function", "function": {"name": "visit", "parameters": PLACE}}


@pytest.fixture(scope="module")
def url(home: Path) -> Iterator[str]:
    words = ["serve", "demo", "--port", "0", "--json", "--lookup"]
    variables = {"SPLASHPY_HOME": str(home), "SPLASHPY_BLAS": "reference"}
    process = subprocess.Popen(
        [sys.executable, "-m", "splashpy", *words],
        env={**os.environ, **variables},
        stdout=subprocess.PIPE,
    )
    try:
        assert process.stdout is not None
        yield json.loads(process.stdout.readline())["url"]
    finally:
        process.terminate()
        process.communicate()


@pytest.fixture
def client(url: str) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=url, api_key="none", max_retries=0) as client:
        yield client


def test_drafts_change_nothing_and_a_turn_is_cached(client: openai.OpenAI) -> None:
    plain = client.chat.completions.create(**ASKED, extra_body={"speculative": False})
    chunks = list(client.chat.completions.create(**ASKED, stream=True))
    drafted = "".join(c.choices[0].delta.content or "" for c in chunks)

    again = client.chat.completions.create(**{**ASKED, "max_tokens": 1})

    assert drafted == plain.choices[0].message.content
    assert drafted
    assert again.usage is not None
    assert again.usage.prompt_tokens_details is not None
    assert (again.usage.prompt_tokens_details.cached_tokens or 0) > 0


def test_an_answer_follows_its_schema(client: openai.OpenAI) -> None:
    form: Any = {"type": "json_schema", "json_schema": {"name": "p", "schema": PLACE}}

    answer = client.chat.completions.create(
        **{**ASKED, "max_tokens": 60}, response_format=form
    )

    content = answer.choices[0].message.content
    assert content is not None
    jsonschema.validate(json.loads(content), PLACE)


def test_tools_are_shown_and_nothing_the_model_says_is_lost(
    client: openai.OpenAI,
) -> None:
    bare = client.chat.completions.create(**{**ASKED, "max_tokens": 1})

    chunks = list(client.chat.completions.create(**ASKED, tools=[TOOL], stream=True))

    deltas = [chunk.choices[0].delta for chunk in chunks]
    assert any(delta.content or delta.tool_calls for delta in deltas)
    assert chunks[-1].choices[0].finish_reason in ("stop", "length", "tool_calls")
    assert bare.usage is not None


def test_a_gap_is_not_filled_by_a_model_that_cannot(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as refused:
        client.completions.create(model="demo", prompt="def f(", suffix="\n")

    assert "gaps" in str(refused.value)
