# SPDX-License-Identifier: Apache-2.0
"""What is given back when the computer runs short of memory."""

from __future__ import annotations

from typing import Any

import mlx.core as mx
import pytest
import tiny

from splashpy.cache.plan import Policy
from splashpy.cache.prefix import PrefixCache
from splashpy.engine.memory_watch import LOOK_SECONDS, PAUSE_SECONDS, MemoryWatch
from splashpy.engine.pressure import of_meminfo
from splashpy.protocol import Log, Memory, Pressure

RUNS = 4


class World:
    """A computer whose pressure and clock a test moves."""

    def __init__(self) -> None:
        self.level: Pressure = "normal"
        self.now = 0.0
        self.told: list[Any] = []
        self.cache = PrefixCache(policy=Policy(shortest=1))
        target = tiny.target()
        for first in range(RUNS):
            ids = tuple(range(100 * first, 100 * first + 50))
            state = target.new_state(50)
            mx.eval(target.forward(state, mx.array(ids) % 250, rows=0).logits)
            mx.eval(state.arrays)
            self.cache.take(ids)
            self.cache.insert(ids, state)
        self.watch = MemoryWatch(self.told.append, lambda: self.level, lambda: self.now)

    def wait(self, seconds: float) -> None:
        self.now += seconds
        self.watch.look(self.cache)


@pytest.fixture
def world() -> World:
    return World()


def test_without_pressure_nothing_is_given_back(world: World) -> None:
    for _ in range(10):
        world.wait(60)
    assert len(world.cache.runs) == RUNS
    assert world.told == []


def test_a_warning_takes_half_and_not_again_for_two_minutes(world: World) -> None:
    newest = world.cache.runs[-1]
    world.level = "warn"
    world.wait(1)
    assert len(world.cache.runs) == RUNS // 2
    for _ in range(10):
        world.wait(LOOK_SECONDS)
    assert len(world.cache.runs) == RUNS // 2
    world.wait(PAUSE_SECONDS)
    assert world.cache.runs == [newest], "what was used last goes last"
    logs = [event for event in world.told if isinstance(event, Log)]
    assert len(logs) == 2
    assert "warn" in logs[0].text


def test_a_critical_computer_gets_everything_at_once(world: World) -> None:
    world.level = "warn"
    world.wait(1)
    world.level = "critical"
    world.wait(LOOK_SECONDS)
    assert world.cache.runs == []
    assert world.cache.nbytes == 0
    memory = [event for event in world.told if isinstance(event, Memory)][-1]
    assert (memory.pressure, memory.kv_tokens) == ("critical", 0)


def test_the_computer_is_not_asked_at_every_cycle(world: World) -> None:
    asked = []
    watch = MemoryWatch(
        world.told.append, lambda: asked.append(1) or "normal", lambda: world.now
    )
    for _ in range(100):
        watch.look(world.cache)
    assert len(asked) == 1
    world.now += LOOK_SECONDS
    watch.look(None)
    assert len(asked) == 2


def test_what_is_in_use_is_told(world: World) -> None:
    world.watch.tell(world.cache)
    (memory,) = world.told
    assert memory.kv_tokens == 50 * RUNS
    assert memory.active > 0
    assert memory.peak >= memory.active


@pytest.mark.parametrize(
    ("available", "level"),
    [(8000, "normal"), (600, "normal"), (400, "warn"), (100, "critical")],
)
def test_linux_tells_by_what_is_available(available: int, level: str) -> None:
    text = f"MemTotal:       10000 kB\nMemFree: 1 kB\nMemAvailable: {available} kB\n"
    assert of_meminfo(text) == level


@pytest.mark.parametrize("text", ["", "MemTotal: 5 kB\n", "MemAvailable: x\n"])
def test_a_system_that_says_nothing_is_under_no_pressure(text: str) -> None:
    assert of_meminfo(text) == "normal"
