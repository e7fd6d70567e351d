# SPDX-License-Identifier: Apache-2.0
"""Slash commands and keys that are for one moment."""

from __future__ import annotations

from pathlib import Path

import pytest
from chat.scripted import Chat, MakeChat, Script

from splashpy.chat.commands import COMMANDS
from splashpy.chat.conversation import Machine
from splashpy.chat.entries import Reply
from splashpy.chat.keeper import Keeper
from splashpy.chat.screens.chat import ChatScreen
from splashpy.chat.screens.error import ErrorScreen
from splashpy.chat.screens.page import PageScreen
from splashpy.chat.screens.picker import PickerScreen
from splashpy.chat.settings import ChatSettings
from splashpy.client.replay import Timed


def test_an_answer_that_was_stopped_is_written_on_beside_itself(
    chat: MakeChat, script: Script
) -> None:
    cut = [
        Timed(0.0, script.cycle(0, "Once upon")),
        Timed(script.never, script.done()),
    ]

    async def scenario(it: Chat) -> None:
        await it.ready()
        await it.send("a story")
        await it.until(lambda: "Once upon" in it.transcript)
        await it.pilot.press("escape")
        await it.until(lambda: it.session.unfinished)
        await it.send("/continue")
        await it.until(lambda: "Once upon a time." in it.transcript)
        assert "‹2/2›" in it.transcript
        last = it.session.history()[-1]
        assert last == {"role": "assistant", "content": "Once upon a time."}

    recording = script.started() + cut + script.answer(" a time.", request="b")
    chat(recording).run(scenario)


def test_a_model_that_was_unloaded_is_loaded_by_the_next_message(
    chat: MakeChat, script: Script
) -> None:
    async def scenario(it: Chat) -> None:
        await it.ready()
        await it.send("/unload")
        await it.until(lambda: "unloaded" in it.status)
        await it.send("hello")
        await it.until(lambda: "again" in it.transcript)
        assert it.session.idle

    chat(script.started() + script.answer("again")).run(scenario)


def test_the_model_of_a_server_is_left_alone(chat: MakeChat, script: Script) -> None:
    settings = ChatSettings(remote=True, server="http://127.0.0.1:1")

    async def scenario(it: Chat) -> None:
        await it.ready()
        await it.send("/unload")
        await it.until(lambda: it.app.screen_stack[1].problem)
        assert it.session.engine.phase == "ready"
        assert "attached" in it.text_of("HeaderBar")

    chat(script.started(), settings=settings).run(scenario)


def test_a_refusal_is_shown_in_full_with_what_its_code_means(
    chat: MakeChat, script: Script
) -> None:
    machine = Machine(explain=lambda code: f"about {code} [bold]")

    async def scenario(it: Chat) -> None:
        await it.ready()
        await it.send("/nonsense")
        await it.pilot.press("f8")
        await it.until(lambda: isinstance(it.app.screen, ErrorScreen))
        await it.pilot.press("c")
        assert "no command /nonsense" in it.app.clipboard
        await it.pilot.press("escape")
        await it.until(lambda: not isinstance(it.app.screen, ErrorScreen))

    chat(script.started(), machine=machine).run(scenario)


def test_earlier_prompts_are_found_by_their_letters(
    chat: MakeChat, script: Script
) -> None:
    async def scenario(it: Chat) -> None:
        await it.ready()
        for text in ("explain the fox", "count to ten"):
            it.prompt.remember_earlier(text)
        await it.pilot.press("ctrl+r")
        await it.until(lambda: isinstance(it.app.screen, PickerScreen))
        await it.pilot.press(*"epfx", "enter")
        await it.until(lambda: it.prompt.text == "explain the fox")

    chat(script.started()).run(scenario)


def test_the_log_and_the_machine_are_shown_as_they_are(
    chat: MakeChat, script: Script
) -> None:
    machine = Machine(log=lambda: "engine.log\n[bold]line", doctor=lambda: "device X")

    async def scenario(it: Chat) -> None:
        await it.ready()
        for command in ("/log", "/doctor"):
            await it.send(command)
            await it.until(lambda: isinstance(it.app.screen, PageScreen))
            await it.pilot.press("escape")
            await it.until(lambda: not isinstance(it.app.screen, PageScreen))

    chat(script.started(), machine=machine).run(scenario)


def test_parameters_of_a_retry_hold_once(chat: MakeChat, script: Script) -> None:
    recording = script.started() + script.answer("x") + script.answer("y", request="b")

    async def scenario(it: Chat) -> None:
        await it.ready()
        await it.send("question")
        await it.until(lambda: it.session.can_retry)
        before = it.session.settings
        await it.send("/retry temp=0.5")
        await it.until(lambda: "‹2/2›" in it.transcript)
        assert it.session.settings == before

    chat(recording).run(scenario)


def test_escape_twice_brings_the_last_message_back(
    chat: MakeChat, script: Script
) -> None:
    async def scenario(it: Chat) -> None:
        await it.ready()
        await it.send("question")
        await it.until(lambda: it.session.can_retry)
        it.app.conversation.now = lambda: 5.0
        await it.pilot.press("escape", "escape")
        await it.until(lambda: it.prompt.text == "question")
        assert it.app.conversation.editing is not None

    chat(script.started() + script.answer("ok")).run(scenario)


NOWHERE = "~no-such-user-here/x"


@pytest.mark.parametrize("argument", ["", NOWHERE, f"@{NOWHERE}", "/dev/null/x", "'"])
def test_no_command_ends_the_chat_whatever_stands_after_it(
    chat: MakeChat, script: Script, tmp_path: Path, argument: str
) -> None:
    def unreadable() -> str:
        raise PermissionError(13, "Permission denied", "/root/engine.log")

    async def scenario(it: Chat) -> None:
        await it.ready()
        await it.send("question")
        await it.until(lambda: it.session.can_retry)
        screen = it.app.screen
        assert isinstance(screen, ChatScreen)
        for name in set(COMMANDS) - {"quit", "mouse", "new", "screenshot"}:
            screen.action_order(name, argument)
            await it.pilot.pause()
            while it.app.screen is not screen:
                await it.pilot.press("escape")
        screen.action_order("screenshot", argument or str(tmp_path / "a.svg"))
        await it.app.workers.wait_for_complete()
        assert it.app.is_running
        assert it.session.tree.messages[0].text == "question"

    chat(
        script.started() + script.answer("x") + script.answer("y", request="b"),
        settings=ChatSettings(remote=True, editor="vi '", pager="less '"),
        machine=Machine(log=unreadable, doctor=unreadable),
        keeper=Keeper(tmp_path / "chats.db"),
    ).run(scenario)


def test_a_picture_of_the_screen_replaces_no_file(
    chat: MakeChat, script: Script, tmp_path: Path
) -> None:
    notes = tmp_path / "notes.md"
    notes.write_text("mine")

    async def scenario(it: Chat) -> None:
        await it.ready()
        it.app.screen.action_order("screenshot", str(notes))
        assert "exists" in it.app.screen.problem.message
        assert notes.read_text() == "mine"
        it.app.screen.action_order("screenshot", str(tmp_path / "a.svg"))
        assert "<svg" in (tmp_path / "a.svg").read_text()

    chat(script.started()).run(scenario)


@pytest.mark.parametrize("command", ["retry", "continue", "compact", "race", "branch"])
def test_what_cannot_be_done_meanwhile_says_why(
    chat: MakeChat, script: Script, command: str
) -> None:
    endless = [
        Timed(0.0, script.cycle(0, "half")),
        Timed(script.never, script.done()),
    ]

    async def scenario(it: Chat) -> None:
        await it.ready()
        await it.send("question")
        await it.until(lambda: "half" in it.transcript)
        it.app.screen.action_order(command)
        assert "until the answer has ended" in it.app.screen.problem.message

    chat(script.started() + endless).run(scenario)


def test_the_mouse_is_given_away_by_another_screen(
    chat: MakeChat, script: Script
) -> None:
    async def scenario(it: Chat) -> None:
        await it.ready()
        await it.send("/mouse off")
        await it.until(lambda: not it.app.is_running)
        assert it.app.return_value is False

    chat(script.started()).run(scenario)


def test_a_race_can_bring_its_own_message(chat: MakeChat, script: Script) -> None:
    laps = script.answer("same") + script.answer("same", request="b")

    async def scenario(it: Chat) -> None:
        await it.ready()
        await it.send("/race why")
        await it.until(lambda: "both wrote the same" in it.transcript)
        replies = [e for e in it.session.tree.messages if isinstance(e, Reply)]
        assert [reply.text for reply in replies] == ["same", "same"]

    chat(script.started() + laps).run(scenario)
