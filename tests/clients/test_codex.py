# SPDX-License-Identifier: Apache-2.0
"""Codex, started as ``splashpy launch codex`` starts it."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

import pytest
from clients.conversation import call, says
from clients.person import Person
from clients.wire import Wire
from scripted_engine import Said, Script
from server_kit import Running

from splashpy.cli.agents import AGENTS, Service

FREE = ("--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox")
RETRIES = "request_max_retries=0, stream_max_retries=0"
PATIENCE = 3.0  # seconds this Codex waits for an event
Codex = Callable[..., str]


@pytest.fixture
def codex(person: Person, service: Service) -> Codex:
    start = AGENTS["codex"].start(service)

    def run(*words: str, patience: float = 60.0, check: bool = True) -> str:
        limits = f"stream_idle_timeout_ms={patience * 1e3:.0f}, {RETRIES}"
        command = [
            word.replace(" }", f", {limits} }}") if "model_providers" in word else word
            for word in start.command
        ]
        done = person.run(
            *command, "exec", *FREE, *words, check=check, **start.environment
        )
        return done.stdout + done.stderr

    return run


def test_says_hi(codex: Codex, script: Script, wire: Wire) -> None:
    script.answers = [says("Hello there.")]

    assert "Hello there." in codex("say hi")
    (asked,) = wire.to("/v1/responses")
    assert asked.json["stream"] is True


def test_runs_a_command_and_shows_the_model_what_it_thought_and_saw(
    codex: Codex, script: Script, wire: Wire, prompts: Callable[[], list[str]]
) -> None:
    script.answers = [
        call("exec_command", "Let me run it.", cmd="echo tool-$((40 + 2))"),
        says("It ran."),
    ]

    told = codex("run it")

    assert "It ran." in told
    kinds = [item["type"] for item in wire.to("/v1/responses")[1].json["input"]]
    assert kinds[-3:] == ["reasoning", "function_call", "function_call_output"]
    assert "Let me run it." in prompts()[1]
    assert "tool-42" in prompts()[1]


def test_waits_through_a_silence_longer_than_its_patience(
    codex: Codex, script: Script
) -> None:
    silence = PATIENCE + 5.0
    script.answers = [
        replace(says("At last."), prefill=lambda: time.sleep(silence)),
    ]

    assert "At last." in codex("say hi", patience=PATIENCE)
    assert len(script.requests) == 1


def test_tells_that_it_ran_out_of_room(
    codex: Codex, script: Script, too_long: Said
) -> None:
    script.answers = [too_long]

    assert "ran out of room" in codex("say hi", check=False)


def test_finds_the_server_as_its_own_local_provider(
    person: Person, server: Running, script: Script, wire: Wire
) -> None:
    script.answers = [says("Hello there.")]

    done = person.run(
        *("codex", "exec", "--oss", "--local-provider", "lmstudio", "-m", "tiny"),
        *FREE,
        "say hi",
        CODEX_OSS_BASE_URL=f"{server.url}/v1",
    )

    assert "Hello there." in done.stdout
    assert {asked.status for asked in wire.calls} == {200}
    warm_ups = [a for a in wire.to("/v1/responses") if a.json["input"] == ""]
    assert warm_ups
