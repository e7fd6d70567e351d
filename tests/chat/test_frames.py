# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from splashpy.chat.frames import (
    LONGEST_SECONDS,
    REMOTE_SECONDS,
    SHARED_SECONDS,
    SHORTEST_SECONDS,
    Frames,
)


def drawn(frames: Frames, seconds: float, cost: float) -> tuple[int, float]:
    """Frames within a time, and the share of it they took."""
    now, used, count = 0.0, 0.0, 0
    while now < seconds:
        frames.begin(now, used)
        count += 1
        now, used = now + cost, used + cost
        now += max(frames.wait(now), 0.0)
    return count, used / seconds


@pytest.mark.parametrize("cost", [0.0001, 0.005, 0.02, 0.05])
def test_frames_take_a_third_of_a_core_at_most_and_are_no_more_than_31(
    cost: float,
) -> None:
    count, share = drawn(Frames(), 10.0, cost)
    assert count <= 10 * 31
    assert share <= 0.36


@pytest.mark.parametrize("cost", [0.0001, 0.001, 0.002, 0.004])
def test_where_the_engine_shares_the_processor_drawing_takes_a_hundredth_of_it(
    cost: float,
) -> None:
    count, share = drawn(Frames(shared=True), 20.0, cost)
    assert 20 / SHARED_SECONDS <= count <= 20 / REMOTE_SECONDS + 1
    assert share <= 0.011


def test_there_are_always_two_frames_a_second_of_an_answer() -> None:
    count, _ = drawn(Frames(shared=True), 10.0, 0.03)
    assert count >= 20


def test_a_pause_between_two_frames_is_not_the_cost_of_one() -> None:
    frames = Frames()
    frames.begin(0.0, 0.0)
    frames.begin(0.1, 0.001)
    before = frames.seconds
    frames.begin(60.0, 5.0)
    assert frames.seconds == before


@pytest.mark.parametrize("cost", [0.0, 1.0])
def test_frames_come_at_least_four_times_a_second_and_less_often_unseen(
    cost: float,
) -> None:
    frames = Frames()
    frames.begin(0.0, 0.0)
    frames.begin(0.5, cost)
    assert SHORTEST_SECONDS <= frames.seconds <= LONGEST_SECONDS
    frames.unseen = True
    assert frames.seconds == LONGEST_SECONDS


def test_the_time_is_drawn_only_where_nothing_else_was_and_delays_no_frame() -> None:
    frames = Frames(shared=True)
    frames.begin(10.0, 0.0)
    assert not frames.tick(10.8)
    assert frames.tick(11.0)
    assert not frames.tick(11.8)
    assert frames.wait(11.0) <= 0
    assert frames.tick(12.0)
