# SPDX-License-Identifier: Apache-2.0
"""When weights are wired and when they are released, on machines of a test's making."""

from __future__ import annotations

from typing import Any

import pytest

from splashpy.engine.memory_watch import LOOK_SECONDS, MemoryWatch
from splashpy.engine.wired import (
    BESIDE_BYTES,
    IDLE_SECONDS,
    NOWHERE,
    Wirable,
    WiredWeights,
)
from splashpy.protocol import Log, Memory, Pressure

GIB = 1 << 30
WEIGHTS = 15 * GIB


class World:
    """A Mac of 36 GB whose clock and pressure a test moves."""

    def __init__(self, memory: int = 36 * GIB, most: int = 27 * GIB) -> None:
        self.now, self.level = 0.0, "normal"
        self.calls: list[int] = []
        self.told: list[Any] = []
        machine = Wirable(memory, most, self.calls.append)
        self.wired = WiredWeights(machine, lambda: self.now)
        self.watch = MemoryWatch(
            self.told.append,
            lambda: self.pressure,
            lambda: self.now,
            self.wired,
            room=lambda: None,
        )

    @property
    def pressure(self) -> Pressure:
        return "warn" if self.level == "warn" else "normal"

    def wait(self, seconds: float, *, busy: bool = False) -> None:
        self.now += seconds
        self.watch.look(None, busy=busy)


@pytest.fixture
def world() -> World:
    return World()


def test_weights_are_wired_with_a_little_beside_them(world: World) -> None:
    world.watch.wire(WEIGHTS)
    assert world.calls == [WEIGHTS + BESIDE_BYTES]
    world.watch.tell(None)
    (memory,) = world.told
    assert isinstance(memory, Memory)
    assert (memory.wired, memory.not_wired) == (WEIGHTS + BESIDE_BYTES, "")


def test_ten_idle_minutes_release_them_and_the_next_request_wires_them(
    world: World,
) -> None:
    world.watch.wire(WEIGHTS)
    world.wait(IDLE_SECONDS - 1)
    world.wait(0, busy=True)
    world.wait(LOOK_SECONDS, busy=True)
    world.wait(IDLE_SECONDS - 1)
    assert world.wired.nbytes, "a request ran meanwhile"
    world.wait(1)
    assert world.calls[1:] == [0]
    assert "10 minutes" in world.wired.reason
    world.watch.begin()
    assert world.calls[2:] == [WEIGHTS + BESIDE_BYTES]


def test_a_computer_short_of_memory_gets_them_at_once_and_keeps_them(
    world: World,
) -> None:
    world.watch.wire(WEIGHTS)
    world.level = "warn"
    world.wait(LOOK_SECONDS, busy=True)
    assert world.calls[1:] == [0]
    world.watch.begin()
    assert world.calls[1:] == [0]
    world.level = "normal"
    world.wait(LOOK_SECONDS, busy=True)
    world.watch.begin()
    assert world.wired.nbytes == WEIGHTS + BESIDE_BYTES


@pytest.mark.parametrize(
    ("memory", "most", "why"),
    [
        (24 * GIB, 16 * GIB, "more than 60% of the 25.8 GB"),
        (36 * GIB, 15 * GIB, "that may be wired here"),
    ],
)
def test_too_much_is_never_wired_and_one_line_says_why(
    memory: int, most: int, why: str
) -> None:
    world = World(memory, most)
    world.watch.wire(WEIGHTS)
    world.watch.begin()
    assert world.calls == []
    (log,) = world.told
    assert isinstance(log, Log)
    assert log.text.startswith("--wired weights has no effect: ")
    assert why in log.text


def test_another_machine_says_that_it_cannot() -> None:
    told: list[Any] = []
    wired = WiredWeights(None)
    watch = MemoryWatch(told.append, lambda: "normal", wired=wired)
    watch.wire(WEIGHTS)
    watch.begin()
    assert wired.nbytes == 0
    assert [event.text for event in told] == [
        f"--wired weights has no effect: {NOWHERE}"
    ]


def test_a_system_that_refuses_is_not_asked_again() -> None:
    def refuse(nbytes: int) -> None:
        raise ValueError("too large")

    wired = WiredWeights(Wirable(36 * GIB, 27 * GIB, refuse))
    wired.begin(WEIGHTS, "normal")
    assert (wired.nbytes, wired.reason) == (0, "macOS refused: too large")
    wired.use("normal")
    assert wired.nbytes == 0


def test_another_model_begins_anew(world: World) -> None:
    world.watch.wire(WEIGHTS)
    world.wired.end()
    world.watch.begin()
    assert world.calls == [WEIGHTS + BESIDE_BYTES, 0]
