# SPDX-License-Identifier: Apache-2.0
"""Lanes of attention against a plain list of rows."""

from __future__ import annotations

import mlx.core as mx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mlx_lm.models.cache import KVCache, RotatingKVCache

from splashpy.models.attention_lanes import LaneKV, LaneList, LaneRotKV

SPARE = 24


def rows(first: int, count: int) -> mx.array:
    """[1, 1, count, 1] rows whose value is their position."""
    return mx.arange(first, first + count, dtype=mx.float32).reshape(1, 1, count, 1)


def fetched(lane: LaneKV | LaneRotKV, new: mx.array) -> list[float]:
    keys, values = lane.update_and_fetch(new, new)
    assert mx.array_equal(keys, values)
    return keys[0, 0, :, 0].tolist()


def test_rows_come_back_in_the_order_they_were_written() -> None:
    lane = LaneKV(capacity=4)
    assert fetched(lane, rows(0, 3)) == [0, 1, 2]
    assert fetched(lane, rows(3, 2)) == [0, 1, 2, 3, 4]
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
        expected += new[0, 0, :, 0].tolist()
        assert fetched(lane, new) == expected
        expected = expected[: max(len(expected) - cut, 0)]
        lane.roll_back(len(expected))


@given(
    st.integers(2, 20),
    st.integers(1, 60),
    st.lists(st.tuples(st.integers(1, 70), st.integers(0, 70)), max_size=30),
)
def test_a_window_gives_the_rows_in_sight_after_any_writes_and_roll_backs(
    window: int, capacity: int, steps: list[tuple[int, int]]
) -> None:
    lane, written = LaneRotKV(window, capacity, spare=SPARE), []
    for number, (count, cut) in enumerate(steps):
        new = rows(1000 * number, count)
        in_sight = written[max(0, len(written) - (window - 1)) :]
        written += new[0, 0, :, 0].tolist()
        assert fetched(lane, new) == in_sight + new[0, 0, :, 0].tolist()
        # Back into a block no longer than the spare rows is always possible.
        kept = max(len(written) - cut, 0)
        if cut <= count <= SPARE:
            assert lane.reaches(kept)
        if lane.reaches(kept):
            lane.roll_back(kept)
            written = written[:kept]
        assert lane.offset == len(written)


@given(st.integers(2, 20), st.integers(0, 90), st.integers(1, 90))
def test_a_snapshot_is_untouched_by_what_is_written_after_it(
    window: int, before: int, after: int
) -> None:
    lane = LaneRotKV(window, 16, spare=SPARE)
    if before:
        fetched(lane, rows(0, before))
    snapshot = lane.snapshot()
    for _ in range(2):
        fetched(lane, rows(500, after))
        lane.restore(snapshot)
        assert lane.offset == before
        expected = list(range(max(0, before - window + 1), before))
        assert fetched(lane, rows(700, 1)) == [*expected, 700]
        lane.restore(snapshot)


@given(st.integers(2, 12), st.integers(0, 40), st.integers(1, 20))
def test_a_window_lane_masks_as_mlx_lms_cache_does(
    window: int, before: int, count: int
) -> None:
    lane = LaneRotKV(window, 16, spare=SPARE)
    theirs = RotatingKVCache(max_size=window)
    if before:
        fetched(lane, rows(0, before))
        theirs.update_and_fetch(rows(0, before), rows(0, before))
    assert same_mask(lane.make_mask(count), theirs.make_mask(count))
    if count > 1:
        assert same_mask(
            lane.make_mask(count, window_size=window),
            theirs.make_mask(count, window_size=window),
        )


@pytest.mark.parametrize("return_array", [False, True])
@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("window", [None, 4])
def test_a_full_lane_masks_as_mlx_lms_cache_does(
    window: int | None, count: int, *, return_array: bool
) -> None:
    lane, theirs = LaneKV(8), KVCache()
    fetched(lane, rows(0, 6))
    theirs.update_and_fetch(rows(0, 6), rows(0, 6))
    asked = {"return_array": return_array, "window_size": window}
    assert same_mask(lane.make_mask(count, **asked), theirs.make_mask(count, **asked))


def same_mask(one: object, other: object) -> bool:
    if isinstance(one, mx.array) and isinstance(other, mx.array):
        return mx.array_equal(one, other).item()
    return one == other


def test_growing_copies_geometrically_rarely() -> None:
    lane, sizes = LaneKV(capacity=256), set()
    for position in range(8192):
        lane.update_and_fetch(rows(position, 1), rows(position, 1))
        sizes.add(lane.arrays[0].shape[2])
        if position % 512 == 0:
            mx.eval(lane.arrays)
    assert len(sizes) < 20


def test_a_window_takes_the_memory_it_needs_whatever_the_length() -> None:
    lane = LaneRotKV(10, 10_000, spare=SPARE)
    fetched(lane, rows(0, 1000))
    for position in range(1000, 1100):
        fetched(lane, rows(position, 1))
    assert lane.arrays[0].shape[2] == 9 + SPARE


def test_a_short_text_reserves_less_than_its_window() -> None:
    lane = LaneRotKV(2048, 30)
    fetched(lane, rows(0, 20))
    assert lane.arrays[0].shape[2] == 30


def test_a_roll_back_beyond_what_is_held_is_refused_with_both_numbers() -> None:
    lane = LaneKV(capacity=4)
    fetched(lane, rows(0, 3))
    with pytest.raises(ValueError, match="cannot keep 4 of 3 rows"):
        lane.roll_back(4)
    window = LaneRotKV(4, 8, spare=SPARE)
    for first in (0, 100):
        fetched(window, rows(first, 100))
    with pytest.raises(ValueError, match="cannot keep 50 of 200 rows"):
        window.roll_back(50)


def test_lanes_of_one_layer_move_together() -> None:
    lanes = LaneList(LaneKV(8), LaneKV(8))
    for index in (0, 1):
        fetched(lanes[index], rows(0, 5))
    mark = lanes.snapshot()
    lanes.roll_back(3)
    assert [lanes[index].offset for index in (0, 1)] == [3, 3]
    assert lanes.offset == 3
    assert lanes.reaches(3)
    assert not lanes.reaches(4)
    with pytest.raises(ValueError, match="cannot keep 5 of 3"):
        lanes.restore(mark)
    assert lanes.row_nbytes == 2 * 2 * 4
