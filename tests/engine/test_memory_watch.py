# SPDX-License-Identifier: Apache-2.0
"""What is given back when the computer runs short of memory."""

from __future__ import annotations

from typing import Any

import mlx.core as mx
import pytest
import tiny

from splashpy.cache.plan import Policy
from splashpy.cache.prefix import PrefixCache
from splashpy.engine import headroom
from splashpy.engine.headroom import ENOUGH_BYTES, LEAST_BYTES, Watermarks
from splashpy.engine.memory_watch import LOOK_SECONDS, PAUSE_SECONDS, MemoryWatch
from splashpy.engine.pressure import of_meminfo
from splashpy.protocol import Log, Memory, Pressure, Shed

RUNS = 4


class World:
    """A computer whose pressure and clock a test moves."""

    def __init__(self) -> None:
        self.level: Pressure = "normal"
        self.now = 0.0
        self.room: int | None = None
        self.told: list[Any] = []
        self.cache = PrefixCache(policy=Policy(shortest=1))
        self.target = tiny.target()
        for first in range(RUNS):
            self.store(first)
        self.watch = MemoryWatch(
            self.told.append,
            lambda: self.level,
            lambda: self.now,
            room=lambda: self.room,
        )

    def store(self, first: int) -> None:
        ids = tuple(range(100 * first, 100 * first + 50))
        state = self.target.new_state(50)
        mx.eval(self.target.forward(state, mx.array(ids) % 250, rows=0).logits)
        mx.eval(state.arrays)
        self.cache.take(ids)
        self.cache.insert(ids, state)

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


def test_memory_that_others_take_is_given_up_step_by_step(world: World) -> None:
    newest, run = world.cache.runs[-1], world.cache.nbytes // RUNS
    world.room = LEAST_BYTES - run - 1
    world.wait(1)
    assert len(world.cache.runs) == RUNS - 2
    world.wait(LOOK_SECONDS)
    assert len(world.cache.runs) == RUNS - 2, "at most once in a second"
    world.wait(LOOK_SECONDS)
    assert world.cache.runs == [newest], "the newest run is where somebody goes on"
    sheds = [event for event in world.told if isinstance(event, Shed)]
    assert {shed.level for shed in sheds} == {"normal"}
    assert [shed.held for shed in sheds] == [2 * run, run]
    for _ in range(5):
        world.wait(60)
    assert world.cache.runs == [newest]
    assert len([e for e in world.told if isinstance(e, Shed)]) == 2


def test_what_is_stored_does_not_grow_before_others_have_given_memory_back(
    world: World,
) -> None:
    held = world.cache.nbytes
    world.room = LEAST_BYTES - 1
    world.wait(1)
    most = world.cache.nbytes
    assert most < held
    world.room = ENOUGH_BYTES - 1
    world.wait(1)
    for first in range(5, 8):
        world.store(first)
        assert world.cache.nbytes <= most
    world.room = ENOUGH_BYTES
    world.wait(1)
    for first in range(10, 14):
        world.store(first)
    assert world.cache.nbytes > most


def test_between_the_marks_nothing_is_given_up(world: World) -> None:
    world.room = LEAST_BYTES
    for first in range(5, 8):
        world.wait(10)
        world.store(first)
    assert len(world.cache.runs) == RUNS + 3
    assert world.told == []


def test_the_rows_of_a_running_text_may_be_stored_when_it_ends(world: World) -> None:
    run = world.cache.nbytes // RUNS
    text = world.watch.ledger.claim("lanes", run)
    world.room = LEAST_BYTES
    world.wait(1)
    world.room = LEAST_BYTES - 1
    world.wait(1)  # one run goes
    text.release()
    world.store(9)
    assert len(world.cache.runs) == RUNS
    world.store(10)
    assert len(world.cache.runs) == RUNS


def test_no_pass_gives_up_more_than_a_gibibyte() -> None:
    marks = Watermarks()
    assert marks.see(-(8 << 30), 0.0) == 1 << 30
    assert marks.see(-(8 << 30), 0.9) == 0
    assert marks.see(LEAST_BYTES - 5, 1.0) == 5
    assert marks.see(None, 9.0) == 0
    assert not marks.short


def test_headroom_is_what_is_available_less_a_reserve() -> None:
    text = "MemTotal: {} kB\nMemFree: 1 kB\nMemAvailable: {} kB\n"
    small = headroom.of_meminfo(text.format(8 << 20, 3 << 20))
    assert small == (3 << 30) - (8 << 30) // 10
    assert headroom.of_meminfo(text.format(64 << 20, 1 << 20)) == -(1 << 30)
    assert headroom.of_meminfo("MemTotal: 5 kB\n") is None
    assert headroom.headroom() is not None


def test_the_computer_is_not_asked_at_every_cycle(world: World) -> None:
    asked = []
    watch = MemoryWatch(
        world.told.append,
        lambda: asked.append(1) or "normal",
        lambda: world.now,
        room=lambda: None,
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
