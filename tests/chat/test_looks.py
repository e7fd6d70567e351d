# SPDX-License-Identifier: Apache-2.0
"""Whole screens as pictures; look at a changed one before you accept it.

Made with textual 8.2.8. Time stands still and nothing blinks, so a picture depends on
the state alone. ``pytest --snapshot-update`` accepts new pictures.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from textual.pilot import Pilot

from splashpy.chat.app import ChatApp
from splashpy.chat.conversation import Conversation, Machine
from splashpy.chat.fit import Offer
from splashpy.chat.settings import ChatSettings
from splashpy.chat.widgets.transcript import Transcript
from splashpy.client.replay import ReplayClient, read_recording
from splashpy.errors import EngineDiedError
from splashpy.protocol import (
    Cycle,
    Device,
    Done,
    Generate,
    Load,
    LoadProgress,
    Prefill,
    Ready,
)

Looks = Callable[..., bool]
NOW = 100.0
GB = 10**9
QUESTION = "Why does block drafting suit Apple silicon?"


def play(conversation: Conversation, path: Path, until: Callable[[Any], bool]) -> None:
    """Let a recording happen up to an event, so that this event comes just now."""
    timed = read_recording(path)
    last = next(i for i, item in enumerate(timed) if until(item.event))
    session = conversation.session
    request = ""
    for item in timed[: last + 1]:
        at = NOW - timed[last].t + item.t
        event: Any = item.event
        if isinstance(event, Prefill) and session.reply is None:
            (command,) = session.submit(QUESTION, at)
            assert isinstance(command, Generate)
            request = command.id
        if getattr(event, "id", ""):
            event = dataclasses.replace(event, id=request)
        session.apply(event, at)


@pytest.fixture
def looks(snap_compare: Callable[..., bool], replays: Path) -> Iterator[Looks]:
    """Compares a screen with its picture: ``looks(until=…, size=…)``."""
    opened: list[Conversation] = []

    def compare(
        recording: str = "tour.ndjson",
        *,
        until: Callable[[Any], bool],
        size: tuple[int, int] = (100, 30),
        theme: str | None = None,
        encoding: str = "utf-8",
        also: Callable[[ChatApp], None] = lambda app: None,
        press: tuple[str, ...] = (),
    ) -> bool:
        settings = ChatSettings(remote=True, theme=theme, encoding=encoding)
        conversation = Conversation(
            lambda: ReplayClient([]),
            Load(model="/models/demo", name="demo-27b"),
            settings,
            clock=lambda: NOW,
            time_of_day=lambda: "14:02",
        )
        opened.append(conversation)
        app = ChatApp(conversation, settings)

        async def prepare(pilot: Pilot[None]) -> None:
            play(conversation, replays / recording, until)
            also(app)
            app.screen.sync()
            await pilot.press(*press)

        return snap_compare(app, terminal_size=size, run_before=prepare)

    yield compare
    for conversation in opened:
        conversation.close()


def loading(event: Any) -> bool:
    return isinstance(event, LoadProgress) and event.done > 10e9


def reading(event: Any) -> bool:
    return isinstance(event, Prefill) and event.processed > 28_000


def writing(event: Any) -> bool:
    return isinstance(event, Cycle) and event.i == 12


def thinking(event: Any) -> bool:
    return isinstance(event, Cycle) and event.i == 4


def finished(event: Any) -> bool:
    return isinstance(event, Done)


def test_loading(looks: Looks) -> None:
    assert looks(until=loading)


def test_ready(looks: Looks) -> None:
    assert looks(until=lambda event: isinstance(event, Ready))


def test_reading_the_prompt(looks: Looks) -> None:
    assert looks(until=reading)


def test_writing(looks: Looks) -> None:
    assert looks(until=writing)


def test_writing_with_a_message_that_waits(looks: Looks) -> None:
    def queue(app: ChatApp) -> None:
        app.conversation.submit("And what about [bold] markup?\nSecond line.")

    assert looks(until=writing, also=queue)


def test_thinking(looks: Looks) -> None:
    assert looks("reasoning.ndjson", until=thinking)


def test_reasoning_that_was_opened(looks: Looks) -> None:
    assert looks("reasoning.ndjson", until=finished, press=("shift+tab", "space"))


def test_finished(looks: Looks) -> None:
    assert looks(until=finished)


def test_finished_in_light_colours(looks: Looks) -> None:
    assert looks(until=finished, theme="splash-light")


@pytest.mark.parametrize("theme", ["ansi-dark", "ansi-light"])
def test_the_sixteen_colours_of_a_terminal(looks: Looks, theme: str) -> None:
    assert looks(until=writing, theme=theme, press=("alt+up",))


def test_a_terminal_that_knows_ascii_alone(looks: Looks) -> None:
    assert looks(until=writing, encoding="ascii", size=(120, 40), press=("f3",))


def test_finished_on_a_narrow_terminal(looks: Looks) -> None:
    assert looks(until=finished, size=(40, 12))


def test_finished_on_a_wide_terminal(looks: Looks) -> None:
    assert looks(until=finished, size=(160, 50))


def test_hostile_text(looks: Looks) -> None:
    assert looks("hostile.ndjson", until=finished, size=(80, 30))


def test_the_engine_died(looks: Looks) -> None:
    def die(app: ChatApp) -> None:
        app.conversation.session.lost(
            EngineDiedError(
                "the engine process ended (killed by signal 9)",
                why="14:02:11 loaded demo-27b\n14:02:31 metal: command buffer failed",
                fix=("restart the engine", "the whole log: /logs/engine.log"),
            )
        )

    assert looks(until=writing, also=die)


def test_an_error_in_full(looks: Looks) -> None:
    def fail(app: ChatApp) -> None:
        app.conversation.session.lost(
            EngineDiedError(
                "the engine process ended (killed by signal 9)",
                why="metal: command buffer failed",
                fix=("restart the engine", "the whole log: /logs/engine.log"),
            )
        )

    assert looks(until=writing, also=fail, press=("f8",))


def test_without_colours(looks: Looks, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    assert looks(until=writing, press=("alt+up",))


def test_help(looks: Looks) -> None:
    assert looks(until=lambda event: isinstance(event, Ready), press=("f1",))


def test_the_beginning_of_a_conversation_that_was_scrolled(looks: Looks) -> None:
    def scroll(app: ChatApp) -> None:
        app.screen.query_one(Transcript).release_anchor()

    assert looks(until=finished, size=(60, 20), also=scroll, press=("ctrl+home",))


def test_speed_panel(looks: Looks) -> None:
    assert looks(until=writing, size=(120, 40), press=("f3",))


def test_speed_panel_on_a_narrow_terminal(looks: Looks) -> None:
    assert looks(until=writing, size=(50, 24), press=("f3",))


def test_tokens_coloured_by_origin(looks: Looks) -> None:
    assert looks(until=finished, press=("f4",))


def test_parameters(looks: Looks) -> None:
    assert looks(until=finished, press=("f2",))


def offer_models(app: ChatApp) -> None:
    """Models of every verdict on a machine that allows 27 GB."""
    known: dict[str, Any] = {
        "kv_per_token": 65_536,
        "context_max": 96 * 1024,
        "has_draft": True,
    }
    offers = [
        Offer(name="demo-27b", path="/models/demo", size_bytes=17 * GB, **known),
        Offer(
            name="large-30b", path="/models/a", size_bytes=21 * GB + GB // 2, **known
        ),
        Offer(name="larger-32b", path="/models/b", size_bytes=24 * GB, **known),
        Offer(name="largest-70b", path="/models/c", size_bytes=40 * GB, **known),
        Offer(name="unknown-kind", path="/models/d", size_bytes=5 * GB),
        Offer(name="qwen3.6-35b-a3b", about="Qwen3.6-35B-A3B with its drafter"),
    ]
    conversation = app.conversation
    conversation.machine = Machine(lambda: offers, lambda: 22 * GB)
    conversation.session.engine.device = Device(
        gpu_cores=20, memory_bytes=36 * GB, working_set_bytes=27 * GB
    )


def test_models_with_every_verdict(looks: Looks) -> None:
    assert looks(until=finished, also=offer_models, press=("ctrl+l", "down"))
