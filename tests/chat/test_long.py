# SPDX-License-Identifier: Apache-2.0
"""What long answers and conversations cost, relative to short ones.

Counted in processor time of this process, the best of several tries, with wide bounds:
another program on the machine must not decide.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from chat.scripted import Chat, MakeChat, Script

from splashpy.chat.document import LiveDocument
from splashpy.chat.entries import UserMessage
from splashpy.chat.flow import Flow
from splashpy.chat.widgets.message import MessageView
from splashpy.chat.widgets.transcript import MOST_ENTRIES

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
