# SPDX-License-Identifier: Apache-2.0
"""Where the terminal's own cursor is: input methods open their window beside it."""

from __future__ import annotations

from pathlib import Path

import pytest
from chat.scripted import Chat, MakeChat, Script
from textual.geometry import Offset

from splashpy.client.replay import Timed


def caret(it: Chat, column: int, row: int) -> Offset:
    """The cell of the editor's text at a column and row."""
    return it.prompt.content_region.offset + Offset(column, row)


@pytest.mark.parametrize("size", [(100, 30), (40, 12)])
def test_the_cursor_of_the_terminal_is_at_the_caret(
    chat: MakeChat, script: Script, tmp_path: Path, size: tuple[int, int]
) -> None:
    file = tmp_path / "notes.md"
    file.write_text("notes")
    reading = [Timed(0.0, script.prefill(0)), Timed(script.never, script.done())]

    async def scenario(it: Chat) -> None:
        await it.ready()
        await it.until(lambda: it.app.cursor_position == caret(it, 0, 0))
        it.prompt.insert("a\u4e16\u754c")
        await it.until(lambda: it.app.cursor_position == caret(it, 5, 0))
        await it.pilot.press("ctrl+j")  # the editor grows upwards
        await it.until(lambda: it.app.cursor_position == caret(it, 0, 1))
        await it.send("x")
        await it.until(lambda: it.session.reply)
        above = it.prompt.region.y
        await it.send("next")  # a row for the message that waits
        await it.until(lambda: it.app.cursor_position == caret(it, 0, 0))
        it.app.screen.writing.attach(file)
        await it.until(lambda: it.app.screen.query_one("AttachedFiles").display)
        await it.until(lambda: it.app.cursor_position == caret(it, 0, 0))
        await it.pilot.resize_terminal(size[0], size[1] + 4)
        await it.until(lambda: it.prompt.region.y != above)
        await it.until(lambda: it.app.cursor_position == caret(it, 0, 0))

    chat(script.started() + reading, size=size).run(scenario)
