# SPDX-License-Identifier: Apache-2.0
"""A paste of any size and origin never submits."""

from __future__ import annotations

import pytest
from chat.scripted import Chat, MakeChat, Script
from textual import events

MARKUP = "[/INST] [bold [1] [key=value] [red]x[/red] [@click=app.quit]y[/]"


@pytest.mark.parametrize("count", [50, 500])
def test_a_paste_is_one_editable_message_with_all_its_lines(
    chat: MakeChat, script: Script, count: int
) -> None:
    lines = [f"line {i} \x1b[31m{MARKUP}" for i in range(count)]

    async def scenario(it: Chat) -> None:
        await it.ready()
        it.prompt.post_message(events.Paste("\r\n".join(lines) + "\r\n"))
        await it.until(lambda: "lines]" in it.prompt.text)
        await it.pilot.press("left", "enter")  # into the label: it opens
        await it.until(lambda: it.prompt.document.line_count == count + 1)
        assert it.session.entries == []
        assert it.prompt.size.height <= 12
        await it.pilot.press(*"end")
        await it.pilot.press("enter")
        await it.until(lambda: it.session.entries)
        sent = it.session.entries[0].text.split("\n")
        assert sent == [line.replace("\x1b", "␛") for line in lines] + ["end"]
        await it.until(lambda: it.session.idle)

    chat(script.started() + script.answer("ok")).run(scenario)


async def paste(it: Chat, text: str) -> None:
    before = it.prompt.text
    it.prompt.post_message(events.Paste(text))
    await it.until(lambda: it.prompt.text != before)


def test_every_label_stands_for_its_own_paste(chat: MakeChat, script: Script) -> None:
    one, two, three = (
        "\n".join(f"{word} {number}" for number in range(20))
        for word in ("one", "[paste 1 · 20 lines]", "three")
    )

    async def scenario(it: Chat) -> None:
        await it.ready()
        await paste(it, one)
        await paste(it, two)
        assert it.prompt.message == one + two
        it.prompt.move_cursor((0, 3))
        await it.pilot.press("enter")  # the first one opens, its label is free
        await it.until(lambda: it.prompt.text.startswith("one 0"))
        it.prompt.move_cursor(it.prompt.document.end)
        await paste(it, three)
        assert it.prompt.message == one + two + three

    chat(script.started()).run(scenario)


def test_what_was_pasted_is_sent_as_it_is_wherever_it_stands(
    chat: MakeChat, script: Script
) -> None:
    code = "\n".join(["// a comment", "/quit"] * 10)

    async def scenario(it: Chat) -> None:
        await it.ready()
        await paste(it, code)
        await it.pilot.press("enter")
        await it.until(lambda: it.session.idle and it.session.entries)
        assert it.session.entries[0].text == code
        it.prompt.insert("/system ")
        await paste(it, code)
        await it.pilot.press("enter")
        await it.until(lambda: it.session.settings.system == code)
        await paste(it, "// short\nint x;")
        await it.pilot.press("enter")
        await it.until(lambda: it.session.queued or len(it.session.entries) > 2)
        assert "// short\nint x;" in [m["content"] for m in it.session.history()]

    answers = script.answer("ok") + script.answer("ok", request="b")
    chat(script.started() + answers).run(scenario)


def test_a_paste_that_gives_way_to_an_edit_is_kept_whole(
    chat: MakeChat, script: Script
) -> None:
    code = "\n".join(f"line {number}" for number in range(20))

    async def scenario(it: Chat) -> None:
        await it.ready()
        await it.send("question")
        await it.until(lambda: it.session.can_retry)
        await paste(it, code)
        it.app.screen.action_order("edit")
        assert it.prompt.text == "question"
        assert it.prompt.earlier.found("line 19") == [code]

    chat(script.started() + script.answer("ok")).run(scenario)


def test_a_paste_beyond_a_megabyte_is_refused_with_its_size(
    chat: MakeChat, script: Script
) -> None:
    async def scenario(it: Chat) -> None:
        await it.ready()
        it.prompt.post_message(events.Paste("x" * 2_000_000))
        await it.until(lambda: it.app._notifications)
        assert "2.0 MB" in next(iter(it.app._notifications)).message
        assert it.prompt.text == ""

    chat(script.started()).run(scenario)


def test_a_paste_that_arrives_as_keys_does_not_submit(
    chat: MakeChat, script: Script
) -> None:
    keys = [events.Key(c, c) for c in "ab"] + [events.Key("enter", "\r")]

    async def scenario(it: Chat) -> None:
        await it.ready()
        for number, key in enumerate(keys * 3):
            burst = type(key)(key.key, key.character)
            burst.time = 1000.0 + number * 0.0001
            it.prompt.post_message(burst)
        await it.until(lambda: it.prompt.text == "ab\nab\nab\n")
        assert it.session.entries == []

    chat(script.started()).run(scenario)
