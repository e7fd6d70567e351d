# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import mlx.core as mx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from splashpy.models.state import LaneKV, TargetState


def rows(first: int, count: int) -> mx.array:
    """[1, 1, count, 1] rows whose value is their position."""
    return mx.arange(first, first + count, dtype=mx.float32).reshape(1, 1, count, 1)


def held(lane: LaneKV) -> list[float]:
    keys, values = lane.update_and_fetch(rows(0, 0), rows(0, 0))
    assert mx.array_equal(keys, values)
    return keys[0, 0, :, 0].tolist()


def test_rows_come_back_in_the_order_they_were_written() -> None:
    lane = LaneKV(capacity=4)
    lane.update_and_fetch(rows(0, 3), rows(0, 3))
    keys, _ = lane.update_and_fetch(rows(3, 2), rows(3, 2))
    assert keys[0, 0, :, 0].tolist() == [0, 1, 2, 3, 4]
    assert lane.offset == 5


@given(
    st.integers(1, 40),
    st.lists(st.tuples(st.integers(1, 300), st.integers(0, 300)), max_size=12),
)
def test_any_series_of_writes_and_roll_backs_equals_a_list(
    capacity: int, steps: list[tuple[int, int]]
) -> None:
    lane, expected = LaneKV(capacity), []
    for number, (count, cut) in enumerate(steps):
        new = rows(1000 * number, count)
        lane.update_and_fetch(new, new)
        expected += new[0, 0, :, 0].tolist()
        expected = expected[: max(len(expected) - cut, 0)]
        lane.roll_back(len(expected))
    if steps:
        assert held(lane) == expected


def test_growing_copies_geometrically_rarely() -> None:
    lane, sizes = LaneKV(capacity=256), set()
    for position in range(8192):
        lane.update_and_fetch(rows(position, 1), rows(position, 1))
        sizes.add(lane.arrays[0].shape[2])
        if position % 512 == 0:
            mx.eval(lane.arrays)
    assert len(sizes) < 20


def test_a_roll_back_beyond_what_is_held_is_refused_with_both_numbers() -> None:
    lane = LaneKV(capacity=4)
    lane.update_and_fetch(rows(0, 3), rows(0, 3))
    with pytest.raises(ValueError, match="cannot keep 4 of 3 rows"):
        lane.roll_back(4)


def test_a_state_rolls_every_lane_back_and_counts_its_bytes() -> None:
    state = TargetState([LaneKV(8), LaneKV(8)])
    for lane in state.lanes:
        lane.update_and_fetch(rows(0, 5), rows(0, 5))
    state.roll_back(2)
    assert state.length == 2
    assert [lane.offset for lane in state.lanes] == [2, 2]
    assert state.nbytes == 2 * 2 * 8 * 4  # lanes, keys and values, rows, float32
