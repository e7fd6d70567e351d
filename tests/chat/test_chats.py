# SPDX-License-Identifier: Apache-2.0
"""The list of saved conversations, as a person uses it."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from chat.scripted import Chat, MakeChat, Script
from textual.widgets import OptionList

from splashpy.chat.keeper import Keeper
from splashpy.chat.saved import SavedConversation, SavedMessage, local_time
from splashpy.chat.screens.picker import PickerScreen
from splashpy.chat.store import opened

AT = "2026-03-01T12:00:00.000Z"


@pytest.fixture
def keeper(tmp_path: Path) -> Keeper:
    path = tmp_path / "chats.db"
    with opened(path, now=lambda: AT) as store:
        for name, title, text in (
            ("01A", "about foxes", "the quick brown fox"),
            ("01B", "about [red]wolves[/]", "the grey wolf\x1b]0;x\x07"),
        ):
            message = SavedMessage(
                id=name + "M", parent=None, role="user", content=text, created_at=AT
            )
            kept = SavedConversation(
                id=name, title=title, created_at=AT, leaf=message.id
            )
            store.write(kept, [message])
    return Keeper(path)


def rows(it: Chat) -> list[str]:
    if not isinstance(it.app.screen, PickerScreen):
        return []
    options = it.app.screen.query_one("#rows", OptionList)
    return [
        str(options.get_option_at_index(n).prompt) for n in range(options.option_count)
    ]


@pytest.mark.parametrize("size", [(100, 30), (40, 12)])
def test_a_conversation_is_found_by_a_word_and_opened(
    chat: MakeChat, script: Script, keeper: Keeper, size: tuple[int, int]
) -> None:
    async def scenario(it: Chat) -> None:
        await it.ready()
        await it.pilot.press("ctrl+s")
        await it.until(lambda: len(rows(it)) == 2)
        assert any("[red]wolves[/]" in row for row in rows(it)) or size[0] < 60
        await it.pilot.press(*"fox")
        await it.until(lambda: len(rows(it)) == 1)
        await it.pilot.press("enter")
        await it.until(lambda: "the quick brown fox" in it.transcript)
        assert keeper.conversation == "01A"

    chat(script.started(), keeper=keeper, size=size).run(scenario)


def test_deleting_needs_the_key_twice(
    chat: MakeChat, script: Script, keeper: Keeper
) -> None:
    async def scenario(it: Chat) -> None:
        await it.ready()
        await it.send("/chats wolf")
        await it.until(lambda: len(rows(it)) == 1)
        await it.pilot.press("ctrl+x")
        assert len(rows(it)) == 1
        await it.pilot.press("ctrl+x")
        await it.until(lambda: rows(it) == [])
        await it.pilot.press("escape")
        assert [s.id for s in keeper.ask(lambda store: store.summaries())] == ["01A"]

    chat(script.started(), keeper=keeper).run(scenario)


def test_a_title_is_changed_and_a_pin_set(
    chat: MakeChat, script: Script, keeper: Keeper
) -> None:
    async def scenario(it: Chat) -> None:
        await it.ready()
        await it.send("/chats fox")
        await it.until(lambda: len(rows(it)) == 1)
        await it.pilot.press("ctrl+o", "ctrl+t")
        await it.pilot.press(*"Reynard", "enter")
        await it.until(lambda: len(rows(it)) == 2)
        assert "★ Reynard" in rows(it)[0]

    chat(script.started(), keeper=keeper).run(scenario)


def test_a_conversation_is_exported_and_imported_as_a_copy(
    chat: MakeChat, script: Script, keeper: Keeper, tmp_path: Path
) -> None:
    path = tmp_path / "talk.json"

    async def scenario(it: Chat) -> None:
        await it.ready()
        await it.send("hello")
        await it.until(lambda: "answer" in it.transcript and it.session.idle)
        await it.send(f"/export {path}")
        assert path.exists()
        first = keeper.conversation
        await it.send(f"/import {path}")
        await it.until(lambda: keeper.conversation != first)
        assert "answer" in it.transcript
        await it.send("/rename copied")
        keeper.flush()
        titles = [s.title for s in keeper.ask(lambda store: store.summaries())]
        assert sorted(titles)[-2:] == ["copied", "hello"]
        await it.send("/delete now")
        await it.until(lambda: it.transcript == "")
        keeper.flush()
        assert len(keeper.ask(lambda store: store.summaries())) == 3

    chat(script.started() + script.answer("answer"), keeper=keeper).run(scenario)


@pytest.mark.parametrize("key", ["ctrl+o", "ctrl+e", "enter"])
def test_a_list_whose_conversation_another_chat_deleted_tells_so(
    chat: MakeChat,
    script: Script,
    keeper: Keeper,
    tmp_path: Path,
    key: str,
) -> None:
    async def scenario(it: Chat) -> None:
        await it.ready()
        await it.send("/chats fox")
        await it.until(lambda: len(rows(it)) == 1)
        with opened(tmp_path / "chats.db", now=lambda: AT) as other:
            other.delete("01A")
        await it.pilot.press(key)
        if key == "ctrl+o":  # nothing to tell: the list is read again
            await it.until(lambda: rows(it) == [])
        else:
            await it.until(lambda: it.app._notifications)
        assert it.app.is_running

    chat(script.started(), keeper=keeper).run(scenario)


def test_what_was_being_written_is_found_again_after_another_was_opened(
    chat: MakeChat, script: Script, keeper: Keeper
) -> None:
    async def scenario(it: Chat) -> None:
        await it.ready()
        it.prompt.insert("half a thought")
        await it.pilot.press("ctrl+s")
        await it.until(lambda: len(rows(it)) == 2)
        await it.pilot.press("enter")
        await it.until(lambda: keeper.conversation)
        assert it.prompt.text == ""
        assert it.prompt.earlier.found("thought") == ["half a thought"]

    chat(script.started(), keeper=keeper).run(scenario)


def test_times_are_those_of_the_clock_on_the_wall(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TZ", "UTC-5:30")  # POSIX counts westwards
    time.tzset()
    try:
        assert local_time("2026-03-01T22:00:00.000Z") == "2026-03-02 03:30"
        assert local_time("yesterday") == "yesterday"
    finally:
        monkeypatch.undo()
        time.tzset()


def test_without_saving_there_is_no_list_but_a_reason(
    chat: MakeChat, script: Script
) -> None:
    async def scenario(it: Chat) -> None:
        await it.ready()
        await it.pilot.press("ctrl+s")
        await it.until(lambda: it.app._notifications)
        assert "--no-save" in next(iter(it.app._notifications)).message

    chat(script.started()).run(scenario)
