# SPDX-License-Identifier: Apache-2.0
"""Terminals that cannot show every character, or disagree about its width."""

from __future__ import annotations

import html
import re

import pytest
from chat.scripted import Chat, MakeChat, Script
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from splashpy.chat.charset import encodable
from splashpy.chat.emoji import spelled_out
from splashpy.chat.settings import ChatSettings
from splashpy.client.replay import Timed
from splashpy.sanitize import sanitize_line


def picture(it: Chat) -> str:
    """The characters of the whole screen as they are sent to the terminal."""
    drawn = re.sub(r"<style>.*?</style>|<[^>]+>", "", it.app.export_screenshot())
    return html.unescape(drawn).replace("\u00a0", " ")


@given(
    st.text(st.characters(exclude_categories=["Cs"]), max_size=40).map(sanitize_line),
    st.sampled_from(["ascii", "iso-8859-1", "koi8-r", "euc_jp"]),
)
def test_what_a_terminal_lacks_is_replaced_at_the_same_width(
    text: str, encoding: str
) -> None:
    shown = encodable(text, encoding)
    shown.encode(encoding)
    assert cell_len(shown) == cell_len(text)


@pytest.mark.parametrize(
    ("text", "encoding", "shown"),
    [
        ("▐▓▓▒░▌ 3 / 4", "ascii", "[##=.] 3 / 4"),
        ("▸ thought", "ascii", "> thought"),
        (
            "caf\u00e9 \u4e16\u754c \u201cyes\u201d",
            "iso-8859-1",
            'caf\u00e9 ???? "yes"',
        ),
    ],
)
def test_bars_and_marks_have_stand_ins(text: str, encoding: str, shown: str) -> None:
    assert encodable(text, encoding) == shown


def test_a_terminal_without_unicode_gets_none_and_a_copy_is_exact(
    chat: MakeChat, script: Script
) -> None:
    answer = "caf\u00e9 \u4e16\u754c"
    writing = [
        Timed(0.0, script.prefill(100)),
        Timed(0.0, script.cycle(0, answer)),
        Timed(0.0, script.cycle(1, " on", tokens=3)),
        Timed(script.never, script.done()),
    ]

    async def scenario(it: Chat) -> None:
        await it.ready()
        await it.send("question")
        await it.until(lambda: "tok/s" in it.status)
        await it.until(lambda: "caf\u00e9 ???? on" in picture(it))
        picture(it).encode("iso-8859-1")
        # The pass that committed three tokens, as a digit after the acceptance length.
        assert "t3.00/43" in "".join(picture(it).split())
        assert it.session.reply is not None
        assert it.session.reply.text == answer + " on"

    settings = ChatSettings(remote=True, encoding="iso-8859-1")
    chat(script.started() + writing, settings=settings).run(scenario)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("done \U0001f389!", "done :party_popper:!"),
        ("\u2764\ufe0f", "\u2764"),
        ("\U0001f44d\U0001f3fd", ":thumbs_up_sign:"),
        ("\U0001f1e9\U0001f1ea", "DE"),
        ("1\ufe0f\u20e3", "1"),
        ("\U0001f469\u200d\U0001f52c", ":woman::microscope:"),
        ("\u2713 \u2610 \u4e16\u754c", "\u2713 \u2610 \u4e16\u754c"),
    ],
)
def test_pictures_are_spelled_out(text: str, shown: str) -> None:
    assert spelled_out(text) == shown


@given(st.text(max_size=12), st.text(max_size=12))
def test_where_a_text_is_cut_does_not_matter_to_its_pictures(a: str, b: str) -> None:
    assert spelled_out(a) + spelled_out(b) == spelled_out(a + b)


def test_an_answer_is_spelled_out_where_it_is_wanted(
    chat: MakeChat, script: Script
) -> None:
    async def scenario(it: Chat) -> None:
        await it.ready()
        await it.send("\U0001f389?")
        await it.until(lambda: "Yes :party_popper:!" in it.transcript)
        assert ":party_popper:?" in it.transcript
        await it.pilot.press("f4")
        await it.until(lambda: "target's own" in it.transcript)
        assert "Yes :party_popper:!" in it.transcript
        assert it.session.history()[1]["content"] == "Yes \U0001f389!"

    settings = ChatSettings(remote=True, emoji=False)
    recording = script.started() + script.answer("Yes ", "\U0001f389", "!")
    chat(recording, settings=settings).run(scenario)
