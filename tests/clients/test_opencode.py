# SPDX-License-Identifier: Apache-2.0
"""opencode, started as ``splashpy launch opencode`` starts it."""

from __future__ import annotations

from clients.conversation import call, says
from clients.person import Person
from clients.wire import Wire
from scripted_engine import Said, Script

from splashpy.cli.agents import AGENTS, Service
from splashpy.engine.request import GenerationRequest

ALONE = {
    "OPENCODE_DISABLE_AUTOUPDATE": "1",
    "OPENCODE_DISABLE_MODELS_FETCH": "1",
    "OPENCODE_DISABLE_LSP_DOWNLOAD": "1",
    "OPENCODE_DISABLE_DEFAULT_PLUGINS": "1",
}
SHORTEST = 20_000  # tokens of a prompt with tools in it


def opencode(person: Person, service: Service, *words: str) -> str:
    start = AGENTS["opencode"].start(service)
    done = person.run(*start.command, *words, **start.environment, **ALONE)
    return done.stdout + done.stderr


def test_runs_a_command_and_gives_the_model_its_thoughts_back(
    person: Person, service: Service, script: Script, wire: Wire
) -> None:
    steps = [
        call(
            "bash", "Let me run it.", command="echo tool-$((40 + 2))", description="x"
        ),
        says("It ran."),
    ]

    def answer(request: GenerationRequest) -> Said:
        """A request for a title, without tools, comes at any time."""
        works = len(request.token_ids) > SHORTEST
        return steps.pop(0) if works and steps else says("A title")

    script.choose = answer

    told = opencode(person, service, "run", "run it")

    assert "It ran." in told
    bodies = [asked.json for asked in wire.to("/v1/chat/completions")]
    history = [body["messages"] for body in bodies if body.get("tools")][-1]
    (thought,) = [m for m in history if m["role"] == "assistant"]
    assert thought["reasoning_content"] == "Let me run it."
    (result,) = [m for m in history if m["role"] == "tool"]
    assert "tool-42" in str(result["content"])
    assert {asked.status for asked in wire.calls} == {200}
