# SPDX-License-Identifier: Apache-2.0
"""Choosing, editing, retrying and branching with keys; what is saved and resumed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from chat.scripted import Chat, MakeChat, Script

from splashpy.chat.commands import COMMANDS
from splashpy.chat.entries import UserMessage
from splashpy.chat.keeper import Keeper
from splashpy.chat.keys import ACTIONS, clashes, rebound
from splashpy.chat.orders.table import ORDERS
from splashpy.chat.settings import ChatSettings
from splashpy.chat.store import Draft
from splashpy.client.replay import Timed


@pytest.fixture
def recording(script: Script) -> list[Timed]:
    return (
        script.started()
        + script.answer("first answer")
        + script.answer("second answer", request="b")
    )


def keeper_at(path: Path) -> Keeper:
    return Keeper(path / "chats.db")


async def ask(it: Chat, text: str, answer: str) -> None:
    await it.until(lambda: it.session.idle)
    await it.send(text)
    await it.until(lambda: answer in it.transcript and it.session.idle)


def history(it: Chat) -> list[str]:
    return [message["content"] for message in it.session.history()]


@pytest.mark.parametrize("size", [(100, 30), (40, 12)])
def test_an_earlier_message_is_chosen_edited_and_sent_again(
    chat: MakeChat, recording: list[Timed], size: tuple[int, int]
) -> None:
    async def scenario(it: Chat) -> None:
        await ask(it, "one", "first answer")
        await it.pilot.press("alt+up", "up", "e")
        assert it.prompt.text == "one"
        assert it.app.focused is it.prompt
        await it.pilot.press("s", "enter")
        await it.until(lambda: "second answer" in it.transcript and it.session.idle)
        assert history(it) == ["ones", "second answer"]
        assert "‹2/2›" in it.transcript

        await it.pilot.press("alt+up", "up", "left_square_bracket")
        await it.until(lambda: "first answer" in it.transcript)
        assert history(it) == ["one", "first answer"]
        await it.pilot.press("left_square_bracket")
        await it.until(lambda: it.app._notifications)

    chat(recording, size=size).run(scenario)


def test_escape_leaves_editing_and_nothing_was_changed(
    chat: MakeChat, recording: list[Timed]
) -> None:
    async def scenario(it: Chat) -> None:
        await ask(it, "one", "first answer")
        await it.send("/edit")
        assert it.prompt.text == "one"
        await it.pilot.press("escape")
        assert it.prompt.text == ""
        assert it.app.conversation.editing is None
        assert history(it) == ["one", "first answer"]

    chat(recording).run(scenario)


def test_a_branch_begins_at_the_chosen_answer(
    chat: MakeChat, recording: list[Timed]
) -> None:
    async def scenario(it: Chat) -> None:
        await ask(it, "one", "first answer")
        await ask(it, "two", "second answer")
        await it.pilot.press("alt+up", "up", "up", "b")
        await it.until(lambda: "second answer" not in it.transcript)
        await it.send("three")
        await it.until(lambda: len(it.session.entries) == 4 and it.session.idle)
        assert history(it)[:3] == ["one", "first answer", "three"]
        assert len(it.session.tree.messages) == 6

    chat(recording).run(scenario)


def test_a_version_with_much_below_it_is_shown_from_its_place(
    chat: MakeChat, script: Script
) -> None:
    async def scenario(it: Chat) -> None:
        await it.ready()
        screen, session = it.app.screen, it.session
        first, second = (UserMessage(text, "14:02") for text in ("first", "second"))
        session.add(first, None)
        for number in range(150):
            message = UserMessage(f"message {number}", "14:02")
            session.add(message, session.tree.leaf)
        session.add(second, None)
        session.show_path()
        screen.sync()
        await it.until(lambda: "second" in it.transcript)
        await it.pilot.press("alt+up", "left_square_bracket")
        await it.until(lambda: "message 149" in it.transcript)
        assert screen.transcript.chosen is first
        view = screen.transcript.view_of(first)
        await it.until(lambda: view.region.overlaps(screen.transcript.region))

    chat(script.started()).run(scenario)


def test_what_was_chosen_is_not_taken_along_into_another_conversation(
    chat: MakeChat, recording: list[Timed], tmp_path: Path
) -> None:
    async def scenario(it: Chat) -> None:
        await ask(it, "one", "first answer")
        await it.pilot.press("alt+up", "ctrl+n")
        await it.until(lambda: it.transcript == "")
        for order in ("edit_chosen", "retry_chosen", "copy_message", "switch"):
            it.app.screen.action_order(order, "-1")
        assert it.app.screen.transcript.chosen is None
        assert it.session.tree.messages == []
        await it.pilot.press(*"be")  # into the editor, not to what was chosen
        assert it.prompt.text == "be"

    chat(recording, keeper=keeper_at(tmp_path)).run(scenario)


def test_the_code_of_an_answer_is_copied_block_by_block(
    chat: MakeChat, script: Script
) -> None:
    text = "```python\na = 1\n```\n\ntext\n\n```\nb\n```\n"

    async def scenario(it: Chat) -> None:
        await ask(it, "code", "a = 1")
        await it.pilot.press("alt+y")
        assert it.app.clipboard == "b\n"
        await it.pilot.press("alt+y")
        assert it.app.clipboard == "a = 1\n"
        await it.pilot.press("alt+up", "y")
        assert it.app.clipboard == "b\n"
        await it.pilot.press("c")
        assert it.app.clipboard == text

    chat(script.started() + script.answer(text)).run(scenario)


def test_an_unknown_command_names_the_nearest_and_keeps_the_text(
    chat: MakeChat, recording: list[Timed]
) -> None:
    async def scenario(it: Chat) -> None:
        await it.ready()
        await it.send("/retri now")
        await it.until(lambda: it.app._notifications)
        assert "/retry" in next(iter(it.app._notifications)).message
        assert it.prompt.text == "/retri now"
        await it.pilot.press("ctrl+c")
        await it.send("//etc")
        await it.until(lambda: "first answer" in it.transcript)
        assert history(it)[0] == "/etc"

    chat(recording).run(scenario)


def test_a_conversation_is_saved_and_gone_on_with(
    chat: MakeChat, recording: list[Timed], tmp_path: Path
) -> None:
    async def first(it: Chat) -> None:
        await ask(it, "one", "first answer")
        await it.pilot.press("alt+r")
        await it.until(lambda: "second answer" in it.transcript and it.session.idle)
        await it.pilot.press(*"unsent")

    keeper = keeper_at(tmp_path)
    chat(recording, keeper=keeper).run(first)
    assert keeper.conversation is not None

    async def second(it: Chat) -> None:
        assert "second answer" in it.transcript
        assert it.prompt.text == "unsent"
        assert "prompt cached" in it.transcript
        await it.pilot.press("alt+up", "left_square_bracket")
        await it.until(lambda: "first answer" in it.transcript)
        await it.pilot.press("escape", "ctrl+c", "up", "up")
        assert it.prompt.text == "one"

    chat(recording, keeper=keeper_at(tmp_path), resume=keeper.conversation).run(second)


def test_a_message_that_waited_and_was_sent_is_no_draft_any_more(
    chat: MakeChat, script: Script, tmp_path: Path
) -> None:
    keeper = keeper_at(tmp_path)
    endless = [
        Timed(0.0, script.cycle(0, "half")),
        Timed(script.never, script.done()),
    ]

    async def scenario(it: Chat) -> None:
        await it.ready()
        await it.send("one")
        await it.until(lambda: "half" in it.transcript)
        await it.send("two")
        await it.until(lambda: it.session.queued == "two" and not it.prompt.text)
        await it.pilot.pause()
        it.app.screen.writing._timer.stop()  # what a key would keep is not the point
        await it.pilot.press("escape")
        await it.until(lambda: "answer" in it.transcript and it.session.idle)
        keeper.flush()
        name = keeper.conversation or ""
        assert keeper.ask(lambda store: store.draft(name)) == Draft()

    recording = script.started() + endless + script.answer("answer", request="b")
    chat(recording, keeper=keeper).run(scenario)


def test_a_chat_that_was_left_in_the_middle_of_an_answer_kept_it(
    chat: MakeChat, script: Script, tmp_path: Path
) -> None:
    writing = [
        Timed(0.0, script.cycle(0, "half an answer")),
        Timed(script.never, script.done()),
    ]

    async def leave(it: Chat) -> None:
        await it.ready()
        await it.send("question")
        await it.until(lambda: "half an answer" in it.transcript)

    keeper = keeper_at(tmp_path)
    chat(script.started() + writing, keeper=keeper).run(leave)

    async def again(it: Chat) -> None:
        assert "half an answer" in it.transcript
        assert "interrupted" in it.transcript

    resumed = chat(
        script.started(), keeper=keeper_at(tmp_path), resume=keeper.conversation
    )
    resumed.run(again)


def test_keys_can_be_rebound(chat: MakeChat, recording: list[Timed]) -> None:
    async def scenario(it: Chat) -> None:
        await ask(it, "one", "first answer")
        await it.pilot.press("alt+r")
        await it.pilot.pause()
        assert it.session.idle
        await it.pilot.press("f8")
        await it.until(lambda: "second answer" in it.transcript)

    settings = ChatSettings(remote=True, keys={"retry": "f8"})
    chat(recording, settings=settings).run(scenario)


def test_no_key_means_two_things_in_one_place() -> None:
    assert clashes(rebound({})) == []
    assert clashes(rebound({"retry": "f1"})) == [("f1", "retry", "help")]
    assert len({row.id for row in ACTIONS}) == len(ACTIONS)


def test_every_command_and_every_key_has_something_to_do() -> None:
    assert set(COMMANDS) <= set(ORDERS)
    ordered = {re.search(r"order\('(\w+)'", row.call) for row in ACTIONS}
    assert {match[1] for match in ordered if match} <= set(ORDERS)
