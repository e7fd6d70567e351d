# SPDX-License-Identifier: Apache-2.0
"""pi, started as ``splashpy launch pi`` starts it, and by its own configuration."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from clients.conversation import call, says
from clients.person import Person
from clients.wire import Wire
from scripted_engine import Script

from splashpy.cli.agents import AGENTS, Service, pi_config

ALONE = {"PI_OFFLINE": "1", "PI_TELEMETRY": "0"}


def test_runs_a_command_and_shows_the_model_what_it_saw(
    person: Person, service: Service, script: Script, prompts: Callable[[], list[str]]
) -> None:
    start = AGENTS["pi"].start(service)
    script.answers = [
        call("bash", "Let me run it.", command="echo tool-$((40 + 2))"),
        says("It ran."),
    ]

    done = person.run(
        *start.command, "-p", "run it", "--no-session", **start.environment, **ALONE
    )

    assert "It ran." in done.stdout
    assert "tool-42" in prompts()[1]
    assert "Let me run it." in prompts()[1]


@pytest.mark.parametrize(
    ("api", "path"),
    [
        ("openai-completions", "/v1/chat/completions"),
        ("openai-responses", "/v1/responses"),
        ("anthropic-messages", "/v1/messages"),
    ],
)
def test_says_hi_in_every_dialect(
    person: Person, service: Service, script: Script, wire: Wire, api: str, path: str
) -> None:
    config = json.loads(json.dumps(pi_config(service)))
    provider = config["providers"]["splashpy"]
    provider["api"] = api
    if api == "anthropic-messages":
        provider["baseUrl"] = service.url
    person.write(".pi/agent/models.json", json.dumps(config))
    script.answers = [says("Hello there.")]

    done = person.run(
        *("pi", "--provider", "splashpy", "--model", service.model),
        *("-p", "say hi", "--no-session"),
        **ALONE,
    )

    assert "Hello there." in done.stdout
    assert [(asked.path, asked.status) for asked in wire.calls] == [(path, 200)]
