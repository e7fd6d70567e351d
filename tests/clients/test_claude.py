# SPDX-License-Identifier: Apache-2.0
"""Claude Code, started as ``splashpy launch claude`` starts it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from clients.conversation import call, says
from clients.person import Person
from clients.wire import Wire
from scripted_engine import Said, Script

from splashpy.cli.agents import AGENTS, Service

ALONE = {
    "DISABLE_AUTOUPDATER": "1",
    "DISABLE_TELEMETRY": "1",
    "DISABLE_ERROR_REPORTING": "1",
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
}
SUMMARY = says("<summary>All of it in short.</summary>")
Claude = Callable[..., str]


@pytest.fixture
def claude(person: Person, service: Service) -> Claude:
    start = AGENTS["claude"].start(service)

    def run(*words: str, check: bool = True) -> str:
        variables = {**start.environment, **ALONE}
        done = person.run(*start.command, *words, check=check, **variables)
        return done.stdout + done.stderr

    return run


def test_runs_a_command_and_shows_the_model_what_it_saw(
    claude: Claude, script: Script, wire: Wire, prompts: Callable[[], list[str]]
) -> None:
    script.answers = [
        call("Bash", command="echo tool-$((40 + 2))", description="Count"),
        says("It ran."),
    ]

    told = claude("-p", "run it", "--allowedTools", "Bash")

    assert "It ran." in told
    assert "tool-42" in prompts()[-1]
    assert {asked.status for asked in wire.calls} == {200}


def test_goes_on_with_a_conversation(
    claude: Claude, script: Script, prompts: Callable[[], list[str]]
) -> None:
    script.answers = [says("Hello there.")]
    claude("-p", "say hi")

    claude("-c", "-p", "again")

    assert "Hello there." in prompts()[-1]
    assert "say hi" in prompts()[-1]


def test_sums_up_once_when_the_conversation_is_too_long(
    claude: Claude,
    script: Script,
    wire: Wire,
    prompts: Callable[[], list[str]],
    too_long: Said,
) -> None:
    script.answers = [says("The first answer.")]
    claude("-p", "first")
    claude("-c", "-p", "second")
    wire.calls.clear()
    script.answers = [too_long, SUMMARY, says("The third answer.")]

    told = claude("-c", "-p", "third")

    assert "The third answer." in told
    statuses = [asked.status for asked in wire.to("/v1/messages")]
    assert statuses == [400, 200, 200]
    assert "All of it in short." in prompts()[-1]


def test_counts_its_context(claude: Claude, wire: Wire) -> None:
    told = claude("-p", "/context")

    counts = wire.to("/v1/messages/count_tokens")
    assert len(counts) > 1
    assert {asked.status for asked in counts} == {200}
    assert "tokens" in told.lower()


def test_tries_again_when_the_server_is_overloaded(
    claude: Claude, script: Script, wire: Wire, no_memory: Said
) -> None:
    script.answers = [no_memory, says("Now it works.")]

    told = claude("-p", "say hi")

    assert "Now it works." in told
    assert [asked.status for asked in wire.to("/v1/messages")][:2] == [529, 200]
