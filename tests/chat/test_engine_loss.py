# SPDX-License-Identifier: Apache-2.0
"""Engines that die, do not start, or cannot load."""

from __future__ import annotations

import pytest
from chat.scripted import Chat, MakeChat, Script

from splashpy.client.client import EngineClient
from splashpy.client.replay import Timed
from splashpy.errors import EngineDiedError, ModelMissingError
from splashpy.protocol import Failure


@pytest.mark.parametrize("key", ["ctrl+r", None])
def test_a_dead_engine_keeps_the_text_and_is_started_by_a_key_or_the_next_message(
    key: str | None, chat: MakeChat, script: Script
) -> None:
    dying = [
        Timed(0.0, script.cycle(0, "unfinished thought")),
        Timed(
            0.2,
            EngineDiedError(
                "the engine process ended (killed by signal 9)", why="line 1\nline 2"
            ),
        ),
    ]

    async def scenario(it: Chat) -> None:
        await it.ready()
        await it.send("question")
        await it.until(lambda: it.session.engine.phase == "dead")
        await it.until(lambda: "partial" in it.transcript)
        assert "unfinished thought" in it.transcript
        assert "killed by signal 9" in it.transcript
        assert "line 2" in it.transcript
        assert "ctrl+r" in it.status

        if key is not None:
            await it.pilot.press(key)
        await it.send("go on")
        await it.until(lambda: "as I said" in it.transcript)
        assert it.connected == 2
        roles = [message["role"] for message in it.session.history()]
        assert roles == ["user", "assistant", "user", "assistant"]

    chat(script.started() + dying, script.started() + script.answer("as I said")).run(
        scenario
    )


def test_a_death_before_the_first_token_puts_the_prompt_back(
    chat: MakeChat, script: Script
) -> None:
    dying = [Timed(0.0, script.prefill(10)), Timed(0.0, EngineDiedError("gone"))]

    async def scenario(it: Chat) -> None:
        await it.ready()
        await it.send("question")
        await it.until(lambda: it.prompt.text == "question")
        assert it.session.history() == ()

    chat(script.started() + dying).run(scenario)


def test_an_engine_that_cannot_start_is_explained(chat: MakeChat) -> None:
    def connect() -> EngineClient:
        raise ModelMissingError("demo is not installed", fix=["splashpy pull demo"])

    async def scenario(it: Chat) -> None:
        await it.until(lambda: "splashpy pull demo" in it.transcript)
        assert "not loaded" in it.status
        assert it.app.is_running

    chat(connect).run(scenario)


def test_a_model_that_fails_to_load_is_explained_and_can_be_tried_again(
    chat: MakeChat, script: Script
) -> None:
    failing = [
        script.started()[0],
        Timed(0.0, Failure(code="E-HASH", message="damaged", fatal=True)),
    ]

    async def scenario(it: Chat) -> None:
        await it.until(lambda: "E-HASH" in it.transcript)
        await it.pilot.press("ctrl+r")
        await it.ready()
        assert "this has passed" in it.transcript

    chat(failing, script.started()).run(scenario)
