# SPDX-License-Identifier: Apache-2.0
"""Nothing a terminal would obey is drawn, by whichever way it came to the screen."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import pytest
from chat.scripted import Chat, MakeChat, Script
from textual import events

from splashpy.chat.conversation import Machine
from splashpy.chat.fit import Offer
from splashpy.chat.keeper import Keeper
from splashpy.chat.saved import SavedConversation, SavedMessage
from splashpy.chat.settings import ChatSettings
from splashpy.chat.store import opened
from splashpy.client.replay import Timed
from splashpy.protocol import Failure

HOSTILE = "evil\x1b]0;owned\x07\x9b31m"
SEEN = "evil␛"
AT = "2026-03-01T12:00:00.000Z"


def drawn(it: Chat) -> str:
    """Everything on screen, as it goes to the terminal."""
    strips = it.app.screen._compositor.render_strips()
    return "\n".join(strip.text for strip in strips)


async def paste(it: Chat) -> None:
    assert it.app.focused is not None
    it.app.focused.post_message(events.Paste(HOSTILE))


async def copied_answer(it: Chat) -> None:
    await it.pilot.press("ctrl+y")
    await it.until(lambda: it.app.clipboard == HOSTILE)
    await it.pilot.press("ctrl+v")


async def name_of_a_file(it: Chat) -> None:
    await it.pilot.press(*"@evi")
    await it.until(lambda: it.prompt.popup and it.prompt.popup.display)
    await it.pilot.press("tab")
    await it.until(lambda: it.prompt.attachments)


async def paste_into_a_list(it: Chat) -> None:
    await it.pilot.press("ctrl+r")
    await paste(it)


async def paste_into_parameters(it: Chat) -> None:
    await it.pilot.press("f2")
    await paste(it)


async def stop_string(it: Chat) -> None:
    sampling = replace(it.session.settings.sampling, stop=(HOSTILE,))
    it.session.settings = replace(it.session.settings, sampling=sampling)
    await it.pilot.press("f2")


async def paste_into_the_system_prompt(it: Chat) -> None:
    await it.pilot.press("f2")
    await it.until(lambda: it.app.screen.query("#system"))
    it.app.screen.query_one("#system").focus()
    await it.pilot.pause()
    await paste(it)


async def model_of_a_saved_conversation(it: Chat) -> None:
    await it.pilot.press("ctrl+s", "down")


async def word_about_a_model(it: Chat) -> None:
    await it.pilot.press("ctrl+l")


async def code_of_an_error(it: Chat) -> None:
    await it.send("again")
    await it.until(lambda: it.session.entries[-1].problem)
    await it.pilot.press("f8")


@pytest.mark.parametrize(
    "way",
    [
        copied_answer,
        name_of_a_file,
        paste_into_a_list,
        paste_into_parameters,
        paste_into_the_system_prompt,
        stop_string,
        model_of_a_saved_conversation,
        word_about_a_model,
        code_of_an_error,
    ],
)
def test_control_characters_are_pictures(
    chat: MakeChat,
    script: Script,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    way: Callable[[Chat], Awaitable[None]],
) -> None:
    (tmp_path / HOSTILE).write_text("text")
    monkeypatch.chdir(tmp_path)
    with opened(tmp_path / "chats" / "chats.db", now=lambda: AT) as store:
        message = SavedMessage(
            id="M", parent=None, role="user", content="x", created_at=AT
        )
        kept = SavedConversation(id="01A", title="x", created_at=AT, model=HOSTILE)
        store.write(kept, [message])
    failure = Failure(id="b", code=HOSTILE, message=HOSTILE, why=HOSTILE)
    answer = script.answer(HOSTILE if way is copied_answer else "ok")
    recording = [*script.started(), *answer, Timed(0.0, failure)]

    async def scenario(it: Chat) -> None:
        await it.ready()
        await it.send("question")
        await it.until(lambda: it.session.idle and it.session.entries)
        before = drawn(it).count(SEEN)
        await way(it)
        await it.until(lambda: drawn(it).count(SEEN) > before)
        assert re.findall("[\x00-\x09\x0b-\x1f\x7f-\x9f]", drawn(it)) == []

    chat(
        recording,
        settings=ChatSettings(remote=True),
        keeper=Keeper(tmp_path / "chats" / "chats.db"),
        machine=Machine(offers=lambda: [Offer(name="m", path="/m", about=HOSTILE)]),
    ).run(scenario)
