# SPDX-License-Identifier: Apache-2.0
"""Sentences shown for a moment."""

from __future__ import annotations

from chat.scripted import Chat, MakeChat, Script

from splashpy.chat.app import MOST_NOTIFICATIONS


def test_few_are_shown_at_once_and_an_error_stays_until_it_is_dismissed(
    chat: MakeChat, script: Script
) -> None:
    def shown(it: Chat) -> list[str]:
        return [notice.message for notice in it.app._notifications]

    async def scenario(it: Chat) -> None:
        await it.ready()
        for number in range(MOST_NOTIFICATIONS + 1):
            it.app.screen.say(f"sentence {number}")
        await it.until(lambda: "sentence 3" in shown(it))
        assert shown(it) == ["sentence 1", "sentence 2", "sentence 3"]
        assert {n.timeout for n in it.app._notifications} == {8.0}
        await it.send("/nothing")
        await it.until(lambda: shown(it))
        (error,) = it.app._notifications
        assert error.time_left > 3600
        await it.pilot.press("escape")
        await it.until(lambda: not shown(it))

    chat(script.started()).run(scenario)
