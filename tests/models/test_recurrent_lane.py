# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import mlx.core as mx
import pytest
from mlx_lm.models.cache import ArraysCache

from splashpy.models.recurrent_lane import LaneRecurrent


def read(lane: LaneRecurrent, rows: int) -> None:
    """A pass that adds 1 to both arrays for every row."""
    lane.begin()
    for index in (0, 1):
        held = lane[index]
        lane[index] = (mx.zeros(3) if held is None else held) + rows
        lane.advance(rows)
    lane.finish(rows)


@pytest.fixture
def lane() -> LaneRecurrent:
    lane = LaneRecurrent(2)
    read(lane, 5)
    read(lane, 7)
    return lane


def value(lane: LaneRecurrent) -> float:
    first = lane[0]
    assert first is not None
    return first[0].item()


def test_the_ends_of_the_last_block_are_reached(lane: LaneRecurrent) -> None:
    assert [length for length in range(14) if lane.reaches(length)] == [5, 12]
    lane.roll_back(12)
    assert value(lane) == 12
    lane.roll_back(5)
    assert lane.offset == value(lane) == 5


@pytest.mark.parametrize("length", [4, 9])
def test_no_other_row_is_reached_alone(length: int, lane: LaneRecurrent) -> None:
    with pytest.raises(ValueError, match=f"cannot keep {length} of 12 rows"):
        lane.roll_back(length)


def test_a_block_can_be_cut_and_then_taken_back(lane: LaneRecurrent) -> None:
    lane.replace(9, [mx.full(3, 9.0)] * 2)
    assert lane.offset == value(lane) == 9
    lane.roll_back(5)
    assert lane.offset == value(lane) == 5


def test_the_first_block_goes_back_to_nothing() -> None:
    lane = LaneRecurrent(2)
    read(lane, 4)
    lane.roll_back(0)
    assert lane[0] is None
    assert lane.arrays == []


def test_no_row_of_one_text_is_masked_as_in_mlx_lms_cache(lane: LaneRecurrent) -> None:
    assert lane.make_mask(7) is ArraysCache(2).make_mask(7) is None
    assert lane.lengths is lane.left_padding is None


def test_a_snapshot_is_the_arrays_themselves(lane: LaneRecurrent) -> None:
    held = [id(array) for array in lane.arrays]
    snapshot = lane.snapshot()
    read(lane, 7)
    lane.restore(snapshot)
    assert [id(array) for array in lane.arrays] == held
    assert lane.offset == 12
