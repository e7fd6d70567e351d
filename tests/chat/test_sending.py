# SPDX-License-Identifier: Apache-2.0
"""Writing, sending, queueing and stopping."""

from __future__ import annotations

import pytest
from chat.scripted import Chat, MakeChat, Script
from textual import events

from splashpy.chat.keys import ENTER_BEGINS_LINES
from splashpy.chat.settings import ChatSettings
from splashpy.client.replay import Timed
from splashpy.protocol import Failure


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


def test_where_enter_begins_a_line_another_key_sends(
    chat: MakeChat, script: Script
) -> None:
    async def scenario(it: Chat) -> None:
        await it.ready()
        assert "ctrl+j send" in str(it.prompt.border_subtitle)
        await it.pilot.press("a", "enter", "b")
        assert it.prompt.text == "a\nb"
        await it.pilot.press("ctrl+j")
        await it.until(lambda: it.session.entries)
        assert it.session.entries[0].text == "a\nb"

    settings = ChatSettings(remote=True, keys=ENTER_BEGINS_LINES)
    chat(script.started() + script.answer("ok"), settings=settings).run(scenario)


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
