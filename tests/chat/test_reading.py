# SPDX-License-Identifier: Apache-2.0
"""Reading: scrolling, folding, selecting, copying, long conversations."""

from __future__ import annotations

from chat.scripted import Chat, MakeChat, Script

from splashpy.chat.entries import Problem, Reply, UserMessage
from splashpy.chat.widgets.message import MessageView
from splashpy.chat.widgets.transcript import KEPT_ENTRIES, Transcript
from splashpy.client.replay import Timed


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
        await it.until(lambda: 0 < views[entries[140]].region.y < 6)

        await it.pilot.press("ctrl+end")
        await it.until(lambda: transcript.following)
        it.session.entries.append(UserMessage("message 200", "14:02"))
        it.app.screen.sync()
        await it.until(lambda: len(it.app.screen.query(MessageView)) == KEPT_ENTRIES)

    chat(script.started()).run(scenario)
