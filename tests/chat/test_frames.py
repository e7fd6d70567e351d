# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from splashpy.chat.frames import LONGEST_SECONDS, SHORTEST_SECONDS, Frames


def drawn(frames: Frames, seconds: float, cost: float) -> tuple[int, float]:
    """Frames within a time, and the share of it they took."""
    now, count = 0.0, 0
    while now < seconds:
        now = max(now + frames.wait(now), now)
        frames.begin(now) if count else frames.begin(0.0)
        count += 1
        now = (now if count > 1 else 0.0) + cost
        frames.end(now)
    return count, count * cost / seconds


@pytest.mark.parametrize("cost", [0.0001, 0.005, 0.02, 0.05])
def test_frames_take_a_third_of_a_core_at_most_and_are_no_more_than_31(
    cost: float,
) -> None:
    count, share = drawn(Frames(), 10.0, cost)
    assert count <= 10 * 31
    assert share <= 0.36


def test_where_the_engine_shares_the_processor_there_are_four_frames_a_second() -> None:
    count, _ = drawn(Frames(shared=True), 10.0, 0.004)
    assert count in (40, 41)


@pytest.mark.parametrize("cost", [0.0, 1.0])
def test_frames_come_at_least_four_times_a_second_and_less_often_unseen(
    cost: float,
) -> None:
    frames = Frames()
    frames.begin(0.0)
    frames.end(cost)
    assert SHORTEST_SECONDS <= frames.seconds <= LONGEST_SECONDS
    frames.unseen = True
    assert frames.seconds == LONGEST_SECONDS


def test_the_time_is_drawn_only_where_nothing_else_was_and_delays_no_frame() -> None:
    frames = Frames(shared=True)
    frames.begin(10.0)
    frames.end(10.001)
    assert not frames.tick(10.9)
    assert frames.tick(11.0)
    assert not frames.tick(11.9)
    assert frames.wait(11.0) <= 0
    assert frames.tick(12.0)
