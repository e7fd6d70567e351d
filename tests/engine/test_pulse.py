# SPDX-License-Identifier: Apache-2.0
"""Working, slow or hanging: told apart by a clock the tests move."""

from __future__ import annotations

import pytest

from splashpy.engine.pulse import SILENT_SECONDS, UNIT_SECONDS, Pulse, Unit
from splashpy.engine.request import EngineEvent, PrefillProgress, TokensCommitted

WRITING = Unit("writing", 2, 8, 500)
READING = Unit("reading", 1, 256, 900)


class World:
    def __init__(self) -> None:
        self.now = 100.0
        self.pulse = Pulse(lambda: self.now)

    def work(self, seconds: float, unit: Unit | None = WRITING) -> str:
        self.pulse.begin()
        self.now += seconds
        return self.pulse.end(unit)


@pytest.fixture
def world() -> World:
    return World()


def cycle(name: str, number: int, drafted: int = 0) -> TokensCommitted:
    return TokensCommitted(name, number, (1,), ("t",), drafted, 0, 0.0, 0.0, 0.0)


def test_a_thread_that_has_nothing_to_do_may_rest_forever(world: World) -> None:
    world.pulse.rest()
    world.now += 1e6
    assert world.pulse.overdue() == ""


def test_a_unit_may_take_a_minute_and_not_more(world: World) -> None:
    world.pulse.begin()
    world.now += UNIT_SECONDS
    assert world.pulse.overdue() == ""
    world.now += 1
    assert world.pulse.overdue() == (
        "a pass of the model has taken 61 seconds, and 60 are the most that is expected"
    )
    world.pulse.end(WRITING)
    assert world.pulse.overdue() == ""


def test_where_units_are_slow_one_may_take_twenty_times_as_long(world: World) -> None:
    for _ in range(5):
        world.work(7.0, READING)
        world.work(1.0)
    world.pulse.begin()
    world.now += 20 * 7.0
    assert world.pulse.overdue() == ""
    world.now += 1
    assert "140 are the most" in world.pulse.overdue()


def test_a_thread_that_is_silent_between_two_units_hangs_as_well(world: World) -> None:
    world.work(1.0)
    world.now += SILENT_SECONDS
    assert world.pulse.overdue() == ""
    world.pulse.beat()
    world.now += SILENT_SECONDS + 1
    assert world.pulse.overdue() == "its thread did nothing for 31 seconds"


def test_a_unit_is_told_of_only_where_it_is_far_slower_than_usual(world: World) -> None:
    assert world.work(50.0) == "", "nothing is usual yet"
    for _ in range(5):
        assert world.work(0.3) == ""
    assert world.work(4.9) == "", "a few seconds are no matter"
    assert world.work(30.0, READING) == "", "of another kind"
    assert world.work(12.0) == (
        "slow: writing 2 text(s) took 12.0 s, usually 0.3 s; width 8, context 500"
    )


def test_steps_that_computed_nothing_teach_nothing(world: World) -> None:
    for _ in range(5):
        world.work(0.0, None)
        world.work(2.0)
    assert world.work(19.0) == ""


def test_the_events_of_a_step_say_what_it_was() -> None:
    shared: list[EngineEvent] = [cycle("a", 3, 4), cycle("b", 9, 2)]
    assert Unit.of(shared, rows=5, context=70) == Unit("writing", 2, 5, 70)
    progress = PrefillProgress("a", 90, 0, 64, 0.1)
    chunk: list[EngineEvent] = [progress, cycle("a", 0)]
    assert Unit.of(chunk, rows=64, context=64) == Unit("reading", 1, 64, 64)
    assert Unit.of([progress], rows=0, context=64) is None
    assert Unit.of([], rows=0, context=0) is None
