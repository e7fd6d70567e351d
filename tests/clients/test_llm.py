# SPDX-License-Identifier: Apache-2.0
"""llm, the command, configured as ``splashpy integrations`` prints it."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from clients.conversation import call, says
from clients.person import Person
from scripted_engine import Script

from splashpy.cli.agents import Service, llm_config

Command = Callable[..., str]


@pytest.fixture
def llm(person: Person, service: Service) -> Command:
    config = person.write("llm/extra-openai-models.yaml", llm_config(service))

    def run(*words: str) -> str:
        folder = str(config.parent)
        return person.run("llm", "-m", "local", *words, LLM_USER_PATH=folder).stdout

    return run


def test_answers(llm: Command, script: Script) -> None:
    script.answers = [says("Hello.")]

    assert llm("hi") == "Hello.\n"


def test_follows_a_schema(llm: Command, script: Script) -> None:
    script.answers = [says('{"name":"Rex","age":3}')]

    found = llm("dogs", "--schema", "name, age int")

    assert json.loads(found) == {"name": "Rex", "age": 3}
    assert script.requests[0].grammar is not None


def test_runs_a_tool(
    llm: Command, script: Script, prompts: Callable[[], list[str]]
) -> None:
    script.answers = [call("llm_time"), says("It is late.")]

    assert llm("what time", "-T", "llm_time").endswith("It is late.\n")
    assert "timezone" in prompts()[1]
