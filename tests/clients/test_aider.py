# SPDX-License-Identifier: Apache-2.0
"""aider, configured as ``splashpy integrations`` prints it."""

from __future__ import annotations

from clients.conversation import says
from clients.person import Person
from scripted_engine import Said, Script
from server_kit import Running

EDIT = "Done.\n\ngreeting.txt\n```\nhello there\n```\n"
QUIET = "--no-show-model-warnings --no-check-update --analytics-disable --no-gitignore"
QUIET += " --yes-always --no-auto-commits --no-pretty"


def aider(person: Person, server: Running, message: str, check: bool = True) -> str:
    done = person.run(
        "aider",
        *("--model", "openai/tiny", "--edit-format", "whole"),
        *QUIET.split(),
        *("--message", message, "greeting.txt"),
        check=check,
        OPENAI_API_BASE=f"{server.url}/v1",
        OPENAI_API_KEY="local",
        LITELLM_LOCAL_MODEL_COST_MAP="True",
    )
    return done.stdout + done.stderr


def test_edits_a_file(person: Person, server: Running, script: Script) -> None:
    greeting = person.project / "greeting.txt"
    greeting.write_text("hello\n")
    script.answers = [says(EDIT)]

    aider(person, server, "say it nicer")

    assert greeting.read_text() == "hello there\n"


def test_explains_that_a_prompt_is_too_long(
    person: Person, server: Running, script: Script, too_long: Said
) -> None:
    (person.project / "greeting.txt").write_text("hello\n")
    script.answers = [too_long]

    told = aider(person, server, "say it nicer", check=False)

    assert "token limit" in told
