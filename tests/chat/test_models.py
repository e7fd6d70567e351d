# SPDX-License-Identifier: Apache-2.0
"""Another model: does it fit, is it loaded, and a race on the present one."""

from __future__ import annotations

import dataclasses

import pytest
from chat.scripted import Chat, MakeChat, Script
from hypothesis import given
from hypothesis import strategies as st

from splashpy.chat.conversation import Machine
from splashpy.chat.fit import Offer, explained, verdict
from splashpy.chat.screens.picker import PickerScreen
from splashpy.client.client import EngineClient
from splashpy.client.replay import ReplayClient, Timed
from splashpy.protocol import Command, Cycle, Device, EngineHello, Generate, Load, Piece

GB = 10**9
MAC = Device(name="M", gpu_cores=10, memory_bytes=36 * GB, working_set_bytes=27 * GB)
BIG = Offer(
    name="big",
    path="/models/big",
    size_bytes=18 * GB,
    unpacked_bytes=100 * GB,
    kv_per_token=65_536,
    context_max=96 * 1024,
    has_draft=True,
)


@pytest.mark.parametrize(
    ("change", "device", "free", "mark", "words"),
    [
        ({}, MAC, None, "✓", "all 96K"),
        ({"size_bytes": 25 * GB}, MAC, None, "◐", "up to 29.8K"),
        ({}, MAC, 12 * GB, "!", "free 6.0 GB"),
        ({"size_bytes": 31 * GB}, MAC, None, "✗", "needs 31.0 GB"),
        ({"size_bytes": 26_900_000_000}, MAC, None, "✗", "27.2 GB with 4K"),
        ({"kv_per_token": 0}, MAC, None, "?", "context not known"),
        ({"size_bytes": 0}, MAC, None, "?", "not known"),
        ({}, None, None, "?", "not known"),
        ({"path": ""}, MAC, None, "?", "not on this machine"),
        ({}, Device(memory_bytes=64 * GB), None, "✗", "needs 100.0 GB"),
    ],
)
def test_a_verdict_follows_from_the_numbers(
    change: dict, device: Device | None, free: int | None, mark: str, words: str
) -> None:
    judged = verdict(dataclasses.replace(BIG, **change), device, free)

    assert judged.mark == mark
    assert words in judged.text


@given(st.integers(1, 60 * GB), st.integers(0, 200_000), st.integers(1, 200_000))
def test_what_is_said_to_fit_does(size: int, per_token: int, context: int) -> None:
    offer = dataclasses.replace(
        BIG, size_bytes=size, kv_per_token=per_token, context_max=context
    )
    if verdict(offer, MAC, None).mark == "✓":
        assert size + per_token * context <= MAC.working_set_bytes
    assert str(explained(offer, MAC))


class Echo(ReplayClient):
    """Remembers which models and answers were asked for."""

    asked: list[Command] = []  # noqa: RUF012 - shared by all engines of one test

    def send(self, command: Command) -> None:
        if isinstance(command, (Load, Generate)):
            self.asked.append(command)
        super().send(command)


@pytest.fixture
def asked() -> list[Command]:
    Echo.asked = []
    return Echo.asked


def machine() -> Machine:
    small = dataclasses.replace(BIG, name="small", path="/models/small", size_bytes=GB)
    huge = dataclasses.replace(
        BIG, name="huge", path="/models/huge", size_bytes=99 * GB
    )
    return Machine(lambda: [BIG, small, huge, Offer(name="far", about="a known one")])


def on_a_mac(script: Script) -> list[Timed]:
    hello, ready = script.started()
    return [
        dataclasses.replace(
            hello, event=EngineHello(proto=1, version="1", pid=1, device=MAC)
        ),
        ready,
    ]


def loads(asked: list[Command]) -> list[str]:
    return [command.model for command in asked if isinstance(command, Load)]


@pytest.mark.parametrize("size", [(100, 30), (40, 12)])
def test_another_model_is_chosen_from_the_list(
    chat: MakeChat, script: Script, asked: list[Command], size: tuple[int, int]
) -> None:
    def engine() -> EngineClient:
        return Echo(on_a_mac(script))

    async def scenario(it: Chat) -> None:
        await it.ready()
        await it.pilot.press("ctrl+l")
        await it.until(lambda: isinstance(it.app.screen, PickerScreen))
        await it.pilot.press(*"small", "enter")
        await it.until(lambda: loads(asked) == ["/models/demo", "/models/small"])
        await it.until(lambda: "small" in it.text_of("HeaderBar"))

    chat(engine, machine=machine(), size=size).run(scenario)


def test_what_does_not_fit_is_loaded_only_when_asked_twice(
    chat: MakeChat, script: Script, asked: list[Command]
) -> None:
    def engine() -> EngineClient:
        return Echo(on_a_mac(script))

    async def scenario(it: Chat) -> None:
        await it.ready()
        await it.pilot.press("ctrl+l")
        await it.until(lambda: isinstance(it.app.screen, PickerScreen))
        first = it.app.screen
        await it.pilot.press(*"huge", "enter")
        await it.until(
            lambda: (
                isinstance(it.app.screen, PickerScreen) and it.app.screen is not first
            )
        )
        await it.pilot.press("down", "enter")
        await it.until(lambda: loads(asked)[-1] == "/models/huge")

    chat(engine, machine=machine()).run(scenario)


def test_a_model_that_is_not_there_names_the_command(
    chat: MakeChat, script: Script
) -> None:
    async def scenario(it: Chat) -> None:
        await it.ready()
        await it.send("/model far")
        await it.until(lambda: it.app._notifications)
        assert "splashpy pull far" in next(iter(it.app._notifications)).message

    chat(script.started(), machine=machine()).run(scenario)


def test_a_race_answers_twice_and_compares(
    chat: MakeChat, script: Script, asked: list[Command]
) -> None:
    def lap(request: str, text: str, ms: float) -> list[Timed]:
        piece = Piece(text, "t", "c")
        cycle = dataclasses.replace(script.cycle(0, ""), pieces=(piece,))
        done = script.done(completion=11)
        timing = dataclasses.replace(done.timing, decode_ms=ms)
        done = dataclasses.replace(done, timing=timing)
        events: list[Cycle | object] = [cycle, done]
        return [Timed(0.0, dataclasses.replace(event, id=request)) for event in events]

    recording = [
        *script.started(),
        *lap("a", "first", 1000),
        *lap("b", "same text", 500),
        *lap("c", "same text", 1000),
    ]

    async def scenario(it: Chat) -> None:
        await it.ready()
        await it.send("/race")
        await it.until(lambda: it.app._notifications)
        await it.pilot.press("ctrl+c")
        await it.send("question")
        await it.until(lambda: "first" in it.transcript and it.session.idle)
        await it.send("/race")
        await it.until(lambda: "2.00x" in it.transcript)
        assert "20.0 tok/s with drafts, 10.0 tok/s without" in it.transcript
        assert "both wrote the same 9 characters" in it.transcript
        laps = [command for command in asked if isinstance(command, Generate)][1:]
        assert [lap.draft for lap in laps] == [True, False]
        assert {lap.sampling.seed for lap in laps} == {0}
        assert it.session.idle

    chat(lambda: Echo(recording)).run(scenario)
