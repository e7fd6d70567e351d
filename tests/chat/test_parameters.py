# SPDX-License-Identifier: Apache-2.0
"""Parameters: what may be written, and what the engine is told then."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

import pytest
from chat.scripted import Chat, MakeChat, Script
from hypothesis import given
from hypothesis import strategies as st
from textual.widgets import Input

from splashpy.chat.parameters import TABLE, changed, default, next_effort, shown
from splashpy.chat.settings import ChatSettings
from splashpy.errors import UsageError
from splashpy.protocol import Ready, Sampling

READY = Ready(
    model="m",
    context_max=100,
    block_size=8,
    effort_levels=("low", "medium", "xhigh"),
    effort_default="xhigh",
    sampling_defaults=Sampling(temperature=0.7),
)


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("temperature", "0.5", "0.5"),
        ("top_k", "40", "40"),
        ("max-tokens", "2K", "2048"),
        ("stop", "END,\\n\\n", "END,\\n\\n"),
        ("draft", "off", "off"),
        ("effort", "low", "low"),
        ("seed", "7", "7"),
    ],
)
def test_a_value_is_set_shown_and_taken_back(name: str, text: str, value: str) -> None:
    settings = changed(ChatSettings(), name, text, READY)
    plain = name.replace("_", "-")

    assert shown(settings, plain) == value
    assert changed(settings, name, "default", READY) == ChatSettings()


@pytest.mark.parametrize(
    ("name", "text", "why"),
    [
        ("temperature", "hot", "from 0 to 2"),
        ("temperature", "nan", "from 0 to 2"),
        ("top-p", "0", "from 0 to 1"),
        ("seed", "-1", "at least 0"),
        ("max-tokens", "0", "such as 512 or 2K"),
        ("draft", "maybe", "on or off"),
        ("effort", "extreme", "low, medium, xhigh"),
        ("colour", "red", "temperature"),
    ],
)
def test_a_value_that_is_not_allowed_is_refused(name: str, text: str, why: str) -> None:
    with pytest.raises(UsageError) as caught:
        changed(ChatSettings(), name, text, READY)
    assert why in caught.value.why


def test_effort_goes_round_the_levels_the_model_has() -> None:
    assert next_effort(ChatSettings(), READY) == "low"
    assert next_effort(ChatSettings(effort="low"), READY) == "medium"
    with pytest.raises(UsageError):
        next_effort(ChatSettings(), Ready(model="m", context_max=1, block_size=1))


def test_defaults_are_the_packages() -> None:
    assert default("temperature", READY) == "0.7"
    assert default("top-k", READY) == "off"
    assert default("effort", READY) == "xhigh"


numbers = st.floats(0, 1, exclude_min=True) | st.integers(1, 100)


@given(st.dictionaries(st.sampled_from(sorted(set(TABLE) - {"effort"})), numbers))
def test_a_saved_conversation_brings_its_parameters_back(wanted: dict) -> None:
    settings = ChatSettings()
    for name, value in wanted.items():
        try:
            settings = changed(settings, name, str(value), READY)
        except UsageError:
            continue  # not every number is allowed everywhere

    assert ChatSettings().with_parameters(settings.parameters()) == settings


@pytest.mark.parametrize("size", [(100, 30), (40, 12)])
def test_the_page_refuses_a_wrong_value_at_its_field(
    chat: MakeChat, script: Script, size: tuple[int, int]
) -> None:
    async def scenario(it: Chat) -> None:
        await it.ready()
        await it.pilot.press("f2")
        await it.until(lambda: it.app.screen.query("#temperature"))
        await it.pilot.press("9", "enter")
        screen = it.app.screen
        note = screen.query_one("#temperature-note")
        await it.until(lambda: "from 0 to 2" in str(note.render()))
        assert it.app.screen is screen
        screen.query_one("#temperature", Input).value = "0.25"
        await it.pilot.press("enter")
        await it.until(lambda: it.app.screen is not screen)
        assert it.session.settings.sampling.temperature == 0.25

    chat(script.started(), size=size).run(scenario)


def test_slash_commands_change_what_is_sent(
    chat: MakeChat, script: Script, tmp_path: Path
) -> None:
    (tmp_path / "system.txt").write_text("Be brief.\n")

    async def scenario(it: Chat) -> None:
        await it.ready()
        await it.send("/set temperature 0.5")
        await it.send(f"/system @{tmp_path / 'system.txt'}")
        await it.send("/seed 7")
        await it.send("/draft off")
        settings = it.session.settings
        assert (settings.sampling.temperature, settings.sampling.seed) == (0.5, 7)
        assert (settings.system, settings.draft) == ("Be brief.", False)
        await it.pilot.press("ctrl+t")
        assert settings.effort is None
        await it.send("hello")
        await it.until(lambda: "answer" in it.transcript and it.session.idle)
        assert it.session.history()[0]["content"] == "Be brief."
        await it.pilot.press("ctrl+n")
        assert it.session.settings == ChatSettings(remote=True)

    chat(script.started() + script.answer("answer")).run(scenario)


def test_effort_is_shown_in_the_header(chat: MakeChat, script: Script) -> None:
    started = script.started(effort_levels=("low", "high"), effort_default="high")

    async def scenario(it: Chat) -> None:
        await it.ready()
        await it.until(lambda: "effort high" in it.text_of("HeaderBar"))
        await it.pilot.press("ctrl+t")
        await it.until(lambda: "effort low" in it.text_of("HeaderBar"))
        assert it.session.settings.effort == "low"

    chat(started).run(scenario)


def test_the_editor_of_the_person_writes_the_message(
    chat: MakeChat,
    script: Script,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    editor = tmp_path / "editor"
    editor.write_text('#!/bin/sh\nprintf "more\\n" >> "$1"\n')
    editor.chmod(0o700)

    async def scenario(it: Chat) -> None:
        await it.ready()
        monkeypatch.setattr(it.app, "suspend", nullcontext)  # there is no terminal
        it.prompt.insert("some ")
        await it.pilot.press("ctrl+g")
        await it.until(lambda: it.prompt.text == "some more")

        it.session.settings = ChatSettings(editor="/nonexistent/editor")
        await it.pilot.press("ctrl+g")
        await it.until(lambda: it.app._notifications)
        assert it.prompt.text == "some more"

    settings = ChatSettings(remote=True, editor=str(editor))
    chat(script.started(), settings=settings).run(scenario)
