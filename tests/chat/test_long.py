# SPDX-License-Identifier: Apache-2.0
"""What long answers and conversations cost, relative to short ones.

Counted in processor time of this process, the best of several tries, with wide bounds:
another program on the machine must not decide.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

import pytest
from chat.scripted import Chat, MakeChat, Script

from splashpy.chat.document import LiveDocument
from splashpy.chat.entries import Reply, UserMessage
from splashpy.chat.flow import Flow
from splashpy.chat.settings import ChatSettings
from splashpy.chat.widgets.message import MOST_CHARACTERS, MessageView
from splashpy.chat.widgets.transcript import KEPT_ENTRIES, MOST_ENTRIES, MOST_ROWS
from splashpy.sanitize import sanitize

ITEM = "- an item of a list that has some **bold** words and `code` in it\n"
TRIES = 5


def cost(work: Callable[[], object]) -> float:
    """Processor seconds of the fastest try."""
    seconds = []
    for _ in range(TRIES):
        start = time.process_time()
        work()
        seconds.append(time.process_time() - start)
    return min(seconds)


def appending(size: int) -> float:
    """The cost of ten appends at the end of a list of so many characters."""
    document, flow = LiveDocument(ITEM * (size // len(ITEM))), Flow()
    flow.show(document.blocks)
    flow.height(80)

    def append() -> None:
        for _ in range(10):
            document.append("more words ")
            flow.show(document.blocks)
            flow.height(80)

    return cost(append)


def test_appending_to_a_long_list_costs_about_what_it_costs_in_a_short_one() -> None:
    assert appending(8000) <= 5 * appending(1000)


def test_a_long_conversation_has_no_more_widgets_than_messages_on_screen(
    chat: MakeChat, script: Script
) -> None:
    async def scenario(it: Chat) -> None:
        await it.ready()
        it.session.entries.extend(
            UserMessage(f"message {number}", "14:02") for number in range(200)
        )
        it.app.screen.sync()
        await it.until(lambda: "message 199" in it.transcript)
        views = it.app.screen.query(MessageView)
        assert len(views) <= MOST_ENTRIES
        assert len(list(it.app.screen.walk_children())) <= len(views) + 40

    chat(script.started()).run(scenario)


def test_only_what_changed_of_an_answer_is_laid_out_again() -> None:
    document, flow = LiveDocument(ITEM * 50), Flow()
    flow.show(document.blocks)
    rows = flow.height(80)
    document.append("more words ")
    assert flow.show(document.blocks) >= rows - 4


@pytest.mark.parametrize(("lines", "kept"), [(1, KEPT_ENTRIES), (300, 12)])
def test_a_conversation_that_is_opened_lays_out_its_end_alone(
    chat: MakeChat, script: Script, lines: int, kept: int
) -> None:
    async def scenario(it: Chat) -> None:
        await it.ready()
        it.session.entries.extend(
            UserMessage("line\n" * lines + f"message {number}", "14:02")
            for number in range(100)
        )
        it.app.screen.sync()
        await it.until(lambda: "message 99" in it.transcript)
        views = it.app.screen.query(MessageView)
        assert len(views) == kept
        assert sum(view.size.height for view in views) <= MOST_ROWS
        assert f"{100 - kept} earlier" in it.text_of("#earlier")

    chat(script.started()).run(scenario)


def test_one_message_of_any_length_is_shown(chat: MakeChat, script: Script) -> None:
    async def scenario(it: Chat) -> None:
        await it.ready()
        message = UserMessage("line\n" * (MOST_ROWS + 500) + "end", "14:02")
        it.session.entries.extend([UserMessage("before", "14:02"), message])
        it.app.screen.sync()
        await it.until(lambda: len(it.app.screen.query(MessageView)) == 1)
        assert "1 earlier" in it.text_of("#earlier")

    chat(script.started()).run(scenario)


def test_text_beyond_a_megabyte_is_read_in_a_pager(
    chat: MakeChat, script: Script, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pager = tmp_path / "pager"
    pager.write_text(f'#!/bin/sh\ncp "$1" "{tmp_path}/read"\n')
    pager.chmod(0o700)
    text = ("word " * 15 + "\n") * (MOST_CHARACTERS // 76 + 1) + "\x1b]0;end"

    async def scenario(it: Chat) -> None:
        await it.ready()
        monkeypatch.setattr(it.app, "suspend", nullcontext)  # there is no terminal
        it.session.add(UserMessage(text, "14:02"), None)
        it.app.screen.sync()
        await it.until(lambda: [v for v in it.app.screen.query(MessageView) if v.size])
        view = it.app.screen.query_one(MessageView)
        last = view.render_line(view.size.height - 1).text
        assert f"{len(text) - MOST_CHARACTERS} characters more" in last
        await it.pilot.press("alt+up", "p")
        await it.until(lambda: (tmp_path / "read").exists())
        assert (tmp_path / "read").read_text() == sanitize(text)

    settings = ChatSettings(remote=True, pager=str(pager))
    chat(script.started(), settings=settings).run(scenario)


def drawing(chat: MakeChat, script: Script, messages: int) -> float:
    """Processor seconds of ten frames at the end of a conversation."""
    found: list[float] = []

    async def scenario(it: Chat) -> None:
        await it.ready()
        reply = Reply("demo", "14:02", "a", 0.0, state="writing")
        it.session.entries.extend(
            UserMessage(ITEM * 9, "14:02") for _ in range(messages)
        )
        it.session.entries.append(reply)
        screen = it.app.screen

        async def frame() -> None:
            reply.text += "some words that were added "
            reply.revision += 1
            drawn = asyncio.Event()
            screen.sync()
            screen.call_after_refresh(drawn.set)
            await drawn.wait()

        await frame()
        for _ in range(TRIES):
            start = time.process_time()
            for _ in range(10):
                await frame()
            found.append(time.process_time() - start)

    chat(script.started()).run(scenario)
    return min(found)


def test_a_frame_costs_about_the_same_however_long_the_conversation_is(
    chat: MakeChat, script: Script
) -> None:
    assert drawing(chat, script, 200) <= 3 * drawing(chat, script, 60)
