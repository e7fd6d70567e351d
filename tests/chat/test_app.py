# SPDX-License-Identifier: Apache-2.0
"""The chat as a person uses it, on a scripted engine."""

from __future__ import annotations

import asyncio

import pytest
from chat.scripted import Chat, MakeChat, Script
from textual import events
from textual.app import App
from textual.pilot import Pilot

from splashpy.chat.app import ChatApp, run_chat
from splashpy.chat.entries import Problem, Reply, UserMessage
from splashpy.chat.screens.chat import ChatScreen
from splashpy.chat.screens.page import PageScreen
from splashpy.chat.settings import ChatSettings
from splashpy.chat.widgets.message import MessageView
from splashpy.chat.widgets.transcript import KEPT_ENTRIES, Transcript
from splashpy.client.client import EngineClient
from splashpy.client.replay import ReplayClient, Timed
from splashpy.errors import (
    EngineDiedError,
    InternalError,
    ModelMissingError,
    UsageError,
)
from splashpy.protocol import Failure, Load

SIZES = [(100, 30), (60, 20), (40, 12), (160, 50)]
MARKUP = "[/INST] [bold [1] [key=value] [red]x[/red] [@click=app.quit]y[/]"


@pytest.mark.parametrize("size", SIZES)
def test_a_message_is_answered_on_a_terminal_of_any_size(
    chat: MakeChat, script: Script, size: tuple[int, int]
) -> None:
    async def scenario(it: Chat) -> None:
        await it.ready()
        await it.send("hello")
        await it.until(lambda: it.session.idle and it.session.entries)
        await it.until(lambda: "Hi there." in it.transcript)
        assert "hello" in it.transcript
        assert it.prompt.text == ""
        assert it.app.focused is it.prompt

    chat(script.started() + script.answer("Hi ", "there."), size=size).run(scenario)


def test_typing_and_sending_work_before_the_engine_is_there(
    chat: MakeChat, script: Script
) -> None:
    loading = script.started()
    slow = [loading[0], Timed(1.5, loading[1].event), *script.answer("late")]

    async def scenario(it: Chat) -> None:
        await it.pilot.press(*"early")
        assert it.prompt.text == "early"
        await it.pilot.press("enter")
        await it.until(lambda: it.session.queued == "early")
        assert "early" in it.text_of("QueuedMessage")
        await it.until(lambda: "late" in it.transcript)
        assert it.session.queued is None

    chat(slow).run(scenario)


def test_a_first_message_from_the_command_line_is_sent(
    chat: MakeChat, script: Script
) -> None:
    async def scenario(it: Chat) -> None:
        await it.until(lambda: "answer" in it.transcript)
        assert "from outside" in it.transcript

    chat(script.started() + script.answer("answer"), first_message="from outside").run(
        scenario
    )


def test_escape_while_the_prompt_is_read_stops_and_keeps_the_message(
    chat: MakeChat, script: Script
) -> None:
    reading = [
        Timed(0.0, script.prefill(60)),
        Timed(script.never, script.done()),
    ]

    async def scenario(it: Chat) -> None:
        await it.ready()
        await it.send("question")
        await it.until(lambda: "60 / 100" in it.status)
        assert "20 cached" in it.status
        await it.pilot.press("escape")
        await it.until(lambda: it.session.idle)
        await it.until(lambda: "stopped" in it.transcript)
        assert "question" in it.transcript
        assert it.session.history() == ({"role": "user", "content": "question"},)

    chat(script.started() + reading).run(scenario)


def test_escape_while_it_writes_keeps_what_was_written(
    chat: MakeChat, script: Script
) -> None:
    writing = [
        Timed(0.0, script.prefill(100)),
        Timed(0.0, script.cycle(0, "half an ")),
        Timed(0.0, script.cycle(1, "answer", tokens=4)),
        Timed(script.never, script.done()),
    ]

    async def scenario(it: Chat) -> None:
        await it.ready()
        await it.send("question")
        await it.until(lambda: "half an answer" in it.transcript)
        assert "τ 4.00/4" in it.status
        await it.pilot.press("escape")
        await it.until(lambda: "· stopped" in it.transcript)
        assert "half an answer" in it.transcript
        assert it.session.history()[-1]["content"] == "half an answer"

    chat(script.started() + writing).run(scenario)


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


def test_one_message_waits_while_an_answer_runs(chat: MakeChat, script: Script) -> None:
    first = [
        Timed(0.0, script.cycle(0, "first")),
        Timed(script.never, script.done()),
    ]

    async def scenario(it: Chat) -> None:
        await it.ready()
        await it.send("one")
        await it.until(lambda: "first" in it.transcript)
        await it.send("two")
        await it.until(lambda: it.session.queued == "two")
        await it.send("three")
        await it.until(lambda: it.prompt.text == "three")
        assert it.session.queued == "two"
        await it.pilot.press("escape")
        await it.until(lambda: "second" in it.transcript)
        assert it.session.queued is None
        assert it.prompt.text == "three"

    chat(script.started() + first + script.answer("second", request="b")).run(scenario)


def test_a_second_escape_takes_the_waiting_message_back(
    chat: MakeChat, script: Script
) -> None:
    loading = script.started()[:1]

    async def scenario(it: Chat) -> None:
        await it.send("impatient")
        await it.until(lambda: it.session.queued is not None)
        await it.pilot.press("escape")
        assert it.session.queued is None
        assert it.prompt.text == "impatient"

    chat(loading).run(scenario)


@pytest.mark.parametrize("count", [50, 500])
def test_a_paste_is_one_editable_message_with_all_its_lines(
    chat: MakeChat, script: Script, count: int
) -> None:
    lines = [f"line {i} \x1b[31m{MARKUP}" for i in range(count)]

    async def scenario(it: Chat) -> None:
        await it.ready()
        it.prompt.post_message(events.Paste("\r\n".join(lines) + "\r\n"))
        await it.until(lambda: "lines]" in it.prompt.text)
        await it.pilot.press("left", "enter")  # into the label: it opens
        await it.until(lambda: it.prompt.document.line_count == count + 1)
        assert it.session.entries == []
        assert it.prompt.size.height <= 12
        await it.pilot.press(*"end")
        await it.pilot.press("enter")
        await it.until(lambda: it.session.entries)
        sent = it.session.entries[0].text.split("\n")
        assert sent == [line.replace("\x1b", "␛") for line in lines] + ["end"]
        await it.until(lambda: it.session.idle)

    chat(script.started() + script.answer("ok")).run(scenario)


def test_a_paste_beyond_a_megabyte_is_refused_with_its_size(
    chat: MakeChat, script: Script
) -> None:
    async def scenario(it: Chat) -> None:
        await it.ready()
        it.prompt.post_message(events.Paste("x" * 2_000_000))
        await it.until(lambda: it.app._notifications)
        assert "2.0 MB" in next(iter(it.app._notifications)).message
        assert it.prompt.text == ""

    chat(script.started()).run(scenario)


def test_a_paste_that_arrives_as_keys_does_not_submit(
    chat: MakeChat, script: Script
) -> None:
    keys = [events.Key(c, c) for c in "ab"] + [events.Key("enter", "\r")]

    async def scenario(it: Chat) -> None:
        await it.ready()
        for number, key in enumerate(keys * 3):
            burst = type(key)(key.key, key.character)
            burst.time = 1000.0 + number * 0.0001
            it.prompt.post_message(burst)
        await it.until(lambda: it.prompt.text == "ab\nab\nab\n")
        assert it.session.entries == []

    chat(script.started()).run(scenario)


def test_a_fast_typist_still_sends(chat: MakeChat, script: Script) -> None:
    async def scenario(it: Chat) -> None:
        await it.ready()
        for number, key in enumerate(["h", "i", "enter"]):
            burst = events.Key(key, key if len(key) == 1 else "\r")
            burst.time = 1000.0 + number * 0.0001
            it.prompt.post_message(burst)
        await it.until(lambda: it.session.entries)
        assert it.session.entries[0].text == "hi"
        await it.until(lambda: it.session.idle)

    chat(script.started() + script.answer("ok")).run(scenario)


@pytest.mark.parametrize("key", ["ctrl+j", "shift+enter", "alt+enter"])
def test_newline_keys_do_not_send(chat: MakeChat, script: Script, key: str) -> None:
    async def scenario(it: Chat) -> None:
        await it.ready()
        await it.pilot.press("a", key, "b")
        assert it.prompt.text == "a\nb"
        assert it.session.entries == []

    chat(script.started()).run(scenario)


def test_a_backslash_before_enter_becomes_a_newline(
    chat: MakeChat, script: Script
) -> None:
    async def scenario(it: Chat) -> None:
        await it.ready()
        await it.send("a\\")
        await it.until(lambda: it.prompt.text == "a\n")
        assert it.session.entries == []

    chat(script.started()).run(scenario)


def test_arrows_walk_through_earlier_prompts_and_back_to_the_draft(
    chat: MakeChat, script: Script
) -> None:
    recording = script.started() + script.answer("x") + script.answer("y", request="b")

    async def scenario(it: Chat) -> None:
        await it.ready()
        for text in ("first", "second"):
            await it.send(text)
            await it.until(lambda: it.session.idle and it.prompt.text == "")
        await it.pilot.press("up")
        assert it.prompt.text == "second"
        await it.pilot.press("up", "up")
        assert it.prompt.text == "first"
        await it.pilot.press("down", "down")
        assert it.prompt.text == ""

    chat(recording).run(scenario)


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


def test_a_failure_is_shown_in_its_message_and_the_prompt_comes_back(
    chat: MakeChat, script: Script
) -> None:
    failing = [
        Timed(
            0.0,
            Failure(
                id="a",
                code="E-CONTEXT",
                message="the prompt has 1,200 tokens",
                why="the context holds 1,024",
                fix=("Shorten the prompt.",),
            ),
        )
    ]

    async def scenario(it: Chat) -> None:
        await it.ready()
        await it.send("far too long")
        await it.until(lambda: "E-CONTEXT" in it.transcript)
        for part in ("1,200 tokens", "holds 1,024", "Shorten the prompt."):
            assert part in it.transcript
        assert it.prompt.text == "far too long"
        assert it.session.history() == ()
        assert it.session.idle
        await it.pilot.press("alt+r")
        await it.until(lambda: "‹2/2›" in it.transcript)
        await it.until(lambda: "E-CONTEXT" in it.transcript)
        assert it.prompt.text == "far too long"

    chat(script.started() + failing).run(scenario)


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


def test_rows_that_come_right_after_a_layout_are_shown(
    chat: MakeChat, script: Script
) -> None:
    async def scenario(it: Chat) -> None:
        await it.ready()
        await it.send("question")
        await it.until(lambda: "τ" in it.transcript)
        transcript = it.app.screen.query_one(Transcript)
        view = it.app.screen.query(MessageView).last()
        reply = view.entry
        assert isinstance(reply, Reply)
        view.refresh(layout=True)
        transcript.layout.arrange(  # as a layout for the sake of another widget does
            transcript, list(transcript.displayed_children), transcript.size
        )
        reply.problem = Problem("E-CONTEXT", "failed", "a reason\n" * 4)
        reply.revision += 1
        view.refresh_entry(0.0)
        await it.until(lambda: "E-CONTEXT" in it.transcript)

    chat(script.started() + script.answer("answer")).run(scenario)


def test_retry_asks_the_same_again_and_keeps_the_old_answer(
    chat: MakeChat, script: Script
) -> None:
    recording = (
        script.started() + script.answer("first") + script.answer("second", request="b")
    )

    async def scenario(it: Chat) -> None:
        await it.ready()
        await it.send("question")
        await it.until(lambda: it.session.can_retry)
        await it.pilot.press("alt+r")
        await it.until(lambda: "second" in it.transcript)
        assert "\nfirst\n" not in it.transcript
        assert "‹2/2›" in it.transcript
        contents = [message["content"] for message in it.session.history()]
        assert contents == ["question", "second"]

    chat(recording).run(scenario)


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


def test_the_last_answer_is_copied_as_its_source(
    chat: MakeChat, script: Script
) -> None:
    source = "**bold** and `code` \\(a\\)"

    async def scenario(it: Chat) -> None:
        await it.ready()
        await it.send("question")
        await it.until(lambda: it.session.can_retry)
        await it.pilot.press("ctrl+y")
        assert it.app.clipboard == source
        await it.until(lambda: it.app._notifications)
        assert "terminal" in next(iter(it.app._notifications)).message

    chat(script.started() + script.answer(source)).run(scenario)


def test_thinking_is_folded_and_opens(chat: MakeChat, script: Script) -> None:
    thinking = [
        Timed(0.0, script.cycle(0, "I wonder.\n", channel="r")),
        Timed(0.0, script.cycle(1, "Seven.", tokens=3)),
        Timed(0.0, script.done()),
    ]

    async def scenario(it: Chat) -> None:
        await it.ready()
        await it.send("question")
        await it.until(lambda: "Seven." in it.transcript)
        await it.until(lambda: it.session.idle)
        assert "▸ thought" in it.transcript
        assert "10 characters" in it.transcript
        assert "I wonder." not in it.transcript
        await it.pilot.press("shift+tab", "space")
        await it.until(lambda: "I wonder." in it.transcript)
        await it.pilot.press("escape")
        assert it.app.focused is it.prompt

    chat(script.started() + thinking).run(scenario)


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
        await it.pilot.press("shift+tab", "x")
        assert it.prompt.text == "x"
        assert it.app.focused is it.prompt

    chat(script.started()).run(scenario)


def test_scrolling_away_keeps_the_place_and_counts_new_rows(
    chat: MakeChat, script: Script
) -> None:
    answer = [
        *(Timed(0.0, script.cycle(i, f"line {i}\n\n")) for i in range(40)),
        *(Timed(1.5, script.cycle(i, f"line {i}\n\n")) for i in range(40, 50)),
        Timed(script.never, script.done()),
    ]

    async def scenario(it: Chat) -> None:
        await it.ready()
        await it.send("question")
        await it.until(lambda: "line 39" in it.transcript)
        transcript = it.app.screen.query_one("Transcript")
        await it.until(lambda: transcript.max_scroll_y > 40)
        await it.pilot.press("pageup")
        await it.until(lambda: not transcript.following)
        place = transcript.scroll_y
        await it.until(lambda: transcript.new_rows > 10)
        assert transcript.scroll_y == place
        assert it.app.screen.query_one("#pill").display
        await it.pilot.press("ctrl+end")
        await it.until(lambda: transcript.following)
        await it.until(lambda: not it.app.screen.query_one("#pill").display)

    chat(script.started() + answer).run(scenario)


def test_the_selection_gives_source_text_without_prefixes(
    chat: MakeChat, script: Script
) -> None:
    answer = "- a list item that is long enough to wrap on forty columns\n\n\tx"

    async def scenario(it: Chat) -> None:
        await it.ready()
        await it.send("question")
        await it.until(lambda: it.session.can_retry)
        await it.until(lambda: "forty columns" in it.transcript)
        it.app.screen.text_select_all()
        await it.until(lambda: it.app.screen.get_selected_text())
        selected = it.app.screen.get_selected_text()
        assert "a list item that is long enough to wrap on forty columns" in selected

    chat(script.started() + script.answer(answer), size=(40, 20)).run(scenario)


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


def test_every_entry_is_one_widget(chat: MakeChat, script: Script) -> None:
    answer = "- a\n- b\n\n```py\nx = 1\n```\n\n| a | b |\n|---|---|\n| c | d |\n"

    async def scenario(it: Chat) -> None:
        await it.ready()
        before = len(list(it.app.screen.walk_children()))
        for number in range(5):
            await it.send(f"question {number}")
            await it.until(lambda: it.session.idle and it.prompt.text == "")
        await it.until(lambda: it.transcript.count("14:02") == 10)
        assert len(list(it.app.screen.walk_children())) <= before + 10 + 1

    chat(script.started() + script.answer(answer)).run(scenario)


def test_a_long_conversation_shows_its_end_and_brings_the_rest_on_the_way_up(
    chat: MakeChat, script: Script
) -> None:
    async def scenario(it: Chat) -> None:
        await it.ready()
        entries = [UserMessage(f"message {number}", "14:02") for number in range(200)]
        it.session.entries.extend(entries)
        it.app.screen.sync()
        transcript = it.app.screen.query_one(Transcript)
        await it.until(lambda: "message 199" in it.transcript)
        assert len(it.app.screen.query(MessageView)) == KEPT_ENTRIES
        assert "140 earlier" in it.text_of("#earlier")
        await it.until(lambda: transcript.max_scroll_y > 100)

        await it.pilot.press("ctrl+home")
        await it.until(lambda: "120 earlier" in it.text_of("#earlier"))
        await it.until(lambda: "message 120\n" in it.transcript)
        await it.until(lambda: transcript.scroll_y > 0)
        shown = [view.entry.text for view in it.app.screen.query(MessageView)]
        assert shown == [f"message {number}" for number in range(120, 200)]
        views = {view.entry: view for view in it.app.screen.query(MessageView)}
        # What was at the top still is, a few rows of margin aside.
        assert 0 < views[entries[140]].region.y < 6

        await it.pilot.press("ctrl+end")
        await it.until(lambda: transcript.following)
        it.session.entries.append(UserMessage("message 200", "14:02"))
        it.app.screen.sync()
        await it.until(lambda: len(it.app.screen.query(MessageView)) == KEPT_ENTRIES)

    chat(script.started()).run(scenario)


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
