# SPDX-License-Identifier: Apache-2.0
"""The demo model behind the real endpoint."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import anthropic
import jsonschema
import openai
import pytest

from splashpy.package.manifest import FILE_NAME, Manifest

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
FLAT: Any = {"type": "function", "name": "visit", "parameters": PLACE}
# The demo's own template shows no tools. This one is the same where there are none.
TOOLS_SHOWN = (
    "{% if tools %}{{ '<|im_start|>system\n' }}{% for tool in tools %}"
    "{{ tool | tojson }}{{ '\n' }}{% endfor %}"
    """{{ '<tool_call>\n{"name": NAME, "arguments": {}}\n</tool_call><|im_end|>\n' }}"""
    "{% endif %}"
)


@pytest.fixture(scope="module")
def caller(
    copied: Callable[[Path], Path], tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """The demo package with a template that shows tools."""
    package = copied(tmp_path_factory.mktemp("caller"))
    template = package / "tokenizer" / "chat_template.jinja"
    text = (TOOLS_SHOWN + template.read_text()).encode()
    template.unlink()
    template.write_bytes(text)
    manifest = Manifest.open(package)
    size, sha256 = len(text), hashlib.sha256(text).hexdigest()
    files = tuple(
        replace(entry, size=size, sha256=sha256)
        if entry.path.endswith(template.name)
        else entry
        for entry in manifest.files
    )
    (package / FILE_NAME).unlink()
    document = replace(manifest, files=files).to_json()
    (package / FILE_NAME).write_text(json.dumps(document))
    return package


@pytest.fixture(scope="module")
def url(caller: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    home = tmp_path_factory.mktemp("caller-home")
    words = ["serve", str(caller), "--port", "0", "--json", "--lookup"]
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


def test_a_forced_call_keeps_to_its_schema_with_drafts_and_without(
    client: openai.OpenAI,
) -> None:
    asked = {**ASKED, "max_tokens": 60, "tools": [TOOL], "tool_choice": "required"}
    asked["parallel_tool_calls"] = False

    plain = client.chat.completions.create(**asked, extra_body={"speculative": False})
    chunks = list(client.chat.completions.create(**asked, stream=True))

    assert plain.choices[0].finish_reason == "tool_calls"
    (call,) = plain.choices[0].message.tool_calls or []
    assert call.type == "function"
    assert call.function.name == "visit"
    jsonschema.validate(json.loads(call.function.arguments), PLACE)
    assert chunks[-1].choices[0].finish_reason == "tool_calls"
    deltas = [c for chunk in chunks for c in chunk.choices[0].delta.tool_calls or ()]
    pieces = [delta.function for delta in deltas if delta.function]
    assert "".join(piece.name or "" for piece in pieces) == "visit"
    assert "".join(p.arguments or "" for p in pieces) == call.function.arguments


def test_a_call_is_forced_by_name_in_the_other_dialects(url: str) -> None:
    with openai.OpenAI(base_url=url, api_key="none", max_retries=0) as client:
        response = client.responses.create(
            model="demo",
            input="Say the alphabet.",
            tools=[FLAT],
            tool_choice={"type": "function", "name": "visit"},
            parallel_tool_calls=False,
            max_output_tokens=60,
        )
    base = url.removesuffix("/v1")
    with anthropic.Anthropic(base_url=base, api_key="none", max_retries=0) as client:
        message = client.messages.create(
            model="demo",
            messages=ASKED["messages"],
            tools=[{"name": "visit", "input_schema": PLACE}],
            tool_choice={
                "type": "tool",
                "name": "visit",
                "disable_parallel_tool_use": True,
            },
            max_tokens=60,
        )

    (item,) = response.output
    assert item.type == "function_call"
    assert response.status == "completed"
    (block,) = message.content
    assert block.type == "tool_use"
    assert message.stop_reason == "tool_use"
    for arguments in (json.loads(item.arguments), block.input):
        jsonschema.validate(arguments, PLACE)


def test_a_gap_is_not_filled_by_a_model_that_cannot(
    client: openai.OpenAI, url: str
) -> None:
    with pytest.raises(openai.BadRequestError) as refused:
        client.completions.create(model="demo", prompt="def f(", suffix="\n")
    assert "gaps" in str(refused.value)

    body = json.dumps({"input_prefix": "def f(", "input_suffix": "\n"}).encode()
    address = url.removesuffix("/v1") + "/infill"
    headers = {"Content-Type": "application/json"}
    with pytest.raises(urllib.error.HTTPError) as answered:
        urllib.request.urlopen(urllib.request.Request(address, body, headers))
    assert answered.value.code == 501
    assert "not supported" in answered.value.read().decode()
