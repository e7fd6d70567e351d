# SPDX-License-Identifier: Apache-2.0
"""Everything a person does in one sitting, on terminals of four sizes."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from chat.scripted import Chat, MakeChat, Script
from textual import events

from splashpy.chat.screens.chat import ChatScreen
from splashpy.client.replay import Timed

SIZES = [(100, 30), (60, 20), (40, 12), (160, 50)]


def sitting(script: Script) -> list[Timed]:
    """Two answers that wait to be stopped, then three that end."""
    never = script.never

    def of(request: str, *timed: tuple[float, Any]) -> list[Timed]:
        return [Timed(t, dataclasses.replace(event, id=request)) for t, event in timed]

    def later(timed: list[Timed]) -> list[Timed]:
        return [Timed(2 * never + item.t, item.event) for item in timed]

    return [
        *script.started(),
        *of("a", (0.0, script.prefill(10)), (never, script.done())),
        *of("b", (never, script.cycle(0, "half")), (2 * never, script.done())),
        *later(script.answer("first answer", request="c")),
        *later(script.answer("second answer", request="d")),
        *later(script.answer("third answer", request="e")),
    ]


async def stop_in_both_phases(it: Chat) -> None:
    await it.send("read this")
    await it.until(lambda: it.session.reply and it.session.reply.prefill)
    await it.pilot.press("escape")
    await it.until(lambda: it.session.idle)
    await it.send("write this")
    await it.until(lambda: "half" in it.transcript)
    it.prompt.insert("and then")  # waits for the answer to end
    await it.pilot.press("enter")
    await it.until(lambda: it.session.queued == "and then")
    await it.pilot.press("escape")
    await it.until(lambda: "first answer" in it.transcript and it.session.idle)
    assert "half" in it.transcript


async def change_what_was_said(it: Chat) -> None:
    await it.pilot.press("alt+r")
    await it.until(lambda: "second answer" in it.transcript and it.session.idle)
    await it.pilot.press("alt+up", "left_square_bracket")
    await it.until(lambda: "first answer" in it.transcript)
    await it.pilot.press("escape")
    await it.send("/edit")
    await it.until(lambda: it.prompt.text == "and then")
    await it.pilot.press("s", "enter")
    await it.until(lambda: "third answer" in it.transcript and it.session.idle)
    assert "and thens" in it.transcript


async def paste(it: Chat) -> None:
    lines = "\n".join(f"line {number}" for number in range(500))
    it.prompt.post_message(events.Paste(lines))
    await it.until(lambda: "500 lines" in it.prompt.text)
    assert it.prompt.message == lines
    await it.pilot.press("ctrl+c")
    await it.until(lambda: it.prompt.text == "")


async def look_at_everything(it: Chat) -> None:
    for key in ("f1", "f2", "ctrl+l"):
        await it.pilot.press(key)
        await it.until(lambda: not isinstance(it.app.screen, ChatScreen))
        await it.pilot.press("escape")
        await it.until(lambda: isinstance(it.app.screen, ChatScreen))
    await it.pilot.press("f3", "pagedown", "pageup", "f3", "f4")
    await it.until(lambda: "accepted drafts" in it.transcript)
    await it.pilot.press("f4", "/", "d", "o")
    await it.until(lambda: it.app.screen.query_one("CompletionPopup").display)
    await it.pilot.press("escape", "ctrl+c")
    assert it.prompt.text == ""
    assert it.app.focused is it.prompt


@pytest.mark.parametrize("size", SIZES, ids=lambda size: "x".join(map(str, size)))
def test_a_sitting_works_on_a_terminal_of_any_size(
    chat: MakeChat, script: Script, size: tuple[int, int]
) -> None:
    async def scenario(it: Chat) -> None:
        await it.ready()
        await stop_in_both_phases(it)
        await change_what_was_said(it)
        await paste(it)
        await look_at_everything(it)

    chat(sitting(script), size=size).run(scenario)
