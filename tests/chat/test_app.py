# SPDX-License-Identifier: Apache-2.0
"""The chat as a person uses it, on a scripted engine."""

from __future__ import annotations

import asyncio

import pytest
from chat.scripted import Chat, MakeChat, Script
from textual.app import App
from textual.pilot import Pilot
from textual.screen import ModalScreen

from splashpy.chat.app import ChatApp, run_chat
from splashpy.chat.screens.chat import ChatScreen
from splashpy.chat.screens.page import PageScreen
from splashpy.chat.settings import ChatSettings
from splashpy.client.replay import ReplayClient, Timed
from splashpy.errors import EngineDiedError, InternalError, UsageError
from splashpy.protocol import Failure, Load

MARKUP = "[/INST] [bold [1] [key=value] [red]x[/red] [@click=app.quit]y[/]"


def test_a_first_message_from_the_command_line_is_sent(
    chat: MakeChat, script: Script
) -> None:
    async def scenario(it: Chat) -> None:
        await it.until(lambda: "answer" in it.transcript)
        assert "from outside" in it.transcript

    chat(script.started() + script.answer("answer"), first_message="from outside").run(
        scenario
    )


def test_ctrl_c_stops_then_clears_then_asks_then_quits(
    chat: MakeChat, script: Script
) -> None:
    writing = [
        Timed(0.0, script.cycle(0, "text")),
        Timed(script.never, script.done()),
    ]

    async def scenario(it: Chat) -> None:
        await it.ready()
        await it.send("question")
        await it.until(lambda: "text" in it.transcript)
        await it.pilot.press(*"next")
        await it.pilot.press("ctrl+c")
        await it.until(lambda: it.session.idle)
        assert it.prompt.text == "next"
        await it.pilot.press("ctrl+c")
        assert it.prompt.text == ""
        await it.pilot.press("ctrl+c")
        assert "ctrl+c again" in it.text_of("HintFooter")
        assert it.app.is_running
        await it.pilot.press("ctrl+c")
        await it.until(lambda: not it.app.is_running)

    chat(script.started() + writing).run(scenario)


def test_a_quit_that_was_not_confirmed_is_forgotten(
    chat: MakeChat, script: Script
) -> None:
    async def scenario(it: Chat) -> None:
        await it.ready()
        await it.pilot.press("ctrl+d")
        assert "ctrl+d again" in it.text_of("HintFooter")
        await it.until(lambda: "again" not in it.text_of("HintFooter"))
        await it.pilot.press("ctrl+d")
        assert it.app.is_running

    chat(script.started()).run(scenario)


def test_markup_of_any_origin_is_shown_as_it_is(chat: MakeChat, script: Script) -> None:
    failing = [
        Timed(
            0.0,
            Failure(
                id="b", code="E-X", message=MARKUP, why=MARKUP, fix=(f"run {MARKUP}",)
            ),
        )
    ]
    settings = ChatSettings(remote=True, title=MARKUP)
    recording = script.started(model=MARKUP) + script.answer(MARKUP) + failing

    async def scenario(it: Chat) -> None:
        it.session.load = type(it.session.load)(model=MARKUP, name=MARKUP)
        await it.ready()
        await it.send(MARKUP)
        await it.until(lambda: it.transcript.count(MARKUP) == 3)
        await it.send(f"again {MARKUP}")
        await it.until(lambda: it.transcript.count(MARKUP) == 8)
        assert MARKUP in it.text_of("HeaderBar")
        assert it.app.is_running

    chat(recording, settings=settings, size=(160, 50)).run(scenario)


@pytest.mark.parametrize("key", ["f1", "f2", "ctrl+r", "ctrl+l"])
def test_ctrl_c_closes_what_is_over_the_conversation(
    chat: MakeChat, script: Script, key: str
) -> None:
    async def scenario(it: Chat) -> None:
        await it.ready()
        await it.pilot.press(key)
        await it.until(lambda: isinstance(it.app.screen, ModalScreen))
        await it.pilot.press("ctrl+c")
        await it.until(lambda: isinstance(it.app.screen, ChatScreen))

    chat(script.started()).run(scenario)


def test_a_new_conversation_starts_empty(chat: MakeChat, script: Script) -> None:
    async def scenario(it: Chat) -> None:
        await it.ready()
        await it.send("question")
        await it.until(lambda: it.session.can_retry)
        await it.pilot.press("ctrl+n")
        await it.until(lambda: it.transcript == "")
        assert it.session.history() == ()
        assert it.app.screen.query_one("#welcome").display

    chat(script.started() + script.answer("answer")).run(scenario)


def test_help_lists_keys_over_the_conversation_and_closes(
    chat: MakeChat, script: Script
) -> None:
    async def scenario(it: Chat) -> None:
        await it.ready()
        await it.pilot.press("f1")
        await it.until(lambda: isinstance(it.app.screen, PageScreen))
        await it.pilot.press("escape")
        await it.until(lambda: not isinstance(it.app.screen, PageScreen))
        assert it.app.focused is it.prompt

    chat(script.started()).run(scenario)


def test_what_is_typed_beside_the_editor_lands_in_it(
    chat: MakeChat, script: Script
) -> None:
    async def scenario(it: Chat) -> None:
        await it.ready()
        await it.pilot.press("shift+tab", "z")
        assert it.prompt.text == "z"
        assert it.app.focused is it.prompt

    chat(script.started()).run(scenario)


@pytest.mark.parametrize("size", [(20, 6), (8, 3), (1, 1)])
def test_a_tiny_terminal_does_not_break_it(
    chat: MakeChat, script: Script, size: tuple[int, int]
) -> None:
    table = "| a | b |\n|---|---|\n| c | 世界 |\n\n```py\nx = 1\n```\n"

    async def scenario(it: Chat) -> None:
        await it.ready()
        await it.send("question")
        await it.until(lambda: it.session.can_retry)
        await it.pilot.resize_terminal(100, 30)
        await it.until(lambda: "世界" in it.transcript)

    chat(script.started() + script.answer(table), size=size).run(scenario)


def headless(app: ChatApp, **_: object) -> None:
    App.run(app, headless=True, size=(80, 24))


def test_a_bug_in_the_chat_is_raised_and_not_printed(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], script: Script
) -> None:
    def fail(self: ChatScreen) -> None:
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr(ChatApp, "run", headless)
    monkeypatch.setattr(ChatScreen, "sync", fail)

    with pytest.raises(InternalError, match="a bug"):
        run_chat(
            lambda: ReplayClient(script.started()),
            Load(model="/models/demo"),
            settings=ChatSettings(remote=True),
        )

    assert "Traceback" not in "".join(capfd.readouterr())


@pytest.mark.parametrize(
    ("recorded", "code"), [(None, 0), (EngineDiedError("killed"), 9)]
)
def test_the_exit_code_says_whether_the_engine_was_lost(
    monkeypatch: pytest.MonkeyPatch,
    script: Script,
    recorded: EngineDiedError | None,
    code: int,
) -> None:
    recording = script.started()
    if recorded is not None:
        recording.append(Timed(0.0, recorded))

    def leave_when_settled(app: ChatApp, **_: object) -> None:
        async def leave(pilot: Pilot[None]) -> None:
            engine = app.conversation.session.engine
            while engine.phase not in ("ready" if code == 0 else "dead", "failed"):
                await asyncio.sleep(0.01)
            await pilot.press("ctrl+q")

        App.run(app, headless=True, size=(80, 24), auto_pilot=leave)

    monkeypatch.setattr(ChatApp, "run", leave_when_settled)

    assert code == run_chat(
        lambda: ReplayClient(recording),
        Load(model="/models/demo"),
        settings=ChatSettings(remote=True),
    )


def test_an_unknown_theme_is_named_with_those_there_are(script: Script) -> None:
    with pytest.raises(UsageError, match="rainbow") as caught:
        run_chat(
            lambda: ReplayClient(script.started()),
            Load(model="/models/demo"),
            settings=ChatSettings(theme="rainbow"),
        )

    assert "splash-light" in caught.value.why
