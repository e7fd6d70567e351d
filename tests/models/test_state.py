# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import mlx.core as mx
import pytest

from splashpy.models.attention_lanes import LaneKV, LaneRotKV
from splashpy.models.recurrent_lane import LaneRecurrent
from splashpy.models.state import Lane, TargetState


def write(state: TargetState, rows: int, *, chunk: bool) -> None:
    """A pass whose rows are their positions; recurrent arrays count the rows."""
    state.begin()
    new = mx.arange(state.length, state.length + rows, dtype=mx.float32)
    for lane in state.lanes:
        if isinstance(lane, LaneRecurrent):
            lane[0] = mx.zeros(1) + lane.offset + rows
        else:
            lane.update_and_fetch(new[None, None, :, None], new[None, None, :, None])
    if chunk:
        state.finish_chunk(rows)
        state.keep()
    else:
        state.finish(new.astype(mx.int32))


def attention() -> TargetState:
    return TargetState([LaneKV(8), LaneKV(8)])


def mixed(**parts: object) -> TargetState:
    lanes: list[Lane] = [LaneRecurrent(1), LaneKV(8), LaneRotKV(4, 8, spare=6)]
    return TargetState(lanes, **parts)


def test_a_state_rolls_every_lane_back_and_counts_its_bytes() -> None:
    state = attention()
    write(state, 5, chunk=True)
    state.roll_back(2)
    assert state.length == 2
    assert [lane.offset for lane in state.lanes] == [2, 2]
    assert state.nbytes == 2 * 2 * 8 * 4  # lanes, keys and values, rows, float32
    assert state.row_nbytes == 2 * 2 * 4


def test_attention_alone_goes_back_to_any_row() -> None:
    state = attention()
    write(state, 5, chunk=True)
    write(state, 5, chunk=True)
    assert [state.nearest(length) for length in (0, 3, 9, 99)] == [0, 3, 9, 10]


def test_what_cannot_be_cut_goes_back_to_where_it_was_kept() -> None:
    state = mixed()
    for rows in (20, 30, 10):
        write(state, rows, chunk=True)
    assert [state.nearest(n) for n in (19, 49, 50, 59, 60)] == [0, 20, 50, 50, 60]
    state.roll_back(50)
    assert [lane.offset for lane in state.lanes] == [50, 50, 50]
    assert state.nearest(60) == 50
    with pytest.raises(ValueError, match="cannot keep 49 of 50 rows"):
        state.roll_back(49)
    state.forget(20)
    assert state.nearest(49) == 0


def test_bytes_of_checkpoints_are_counted_once() -> None:
    state = mixed()
    write(state, 6, chunk=True)
    recurrent, full, window = 4, 2 * 8 * 4, 2 * 8 * 4
    in_sight = 2 * 3 * 4  # keys and values of the window, copied
    assert state.nbytes == recurrent + full + window + in_sight


def test_a_block_whose_inputs_are_unknown_is_read_again() -> None:
    read: list[int] = []

    def again(state: TargetState, token_ids: mx.array) -> None:
        read.extend(token_ids.tolist())
        write(state, len(token_ids), chunk=False)

    state = mixed(read=again)
    write(state, 20, chunk=True)
    write(state, 5, chunk=False)
    state.roll_back(23)
    assert read == [20, 21, 22]
    assert [lane.offset for lane in state.lanes] == [23, 23, 23]
    state.roll_back(20)
    assert state.length == 20
    assert read == [20, 21, 22]  # the beginning of a block needs no reading


def test_a_roll_back_names_the_nearest_way_back() -> None:
    state = mixed()
    write(state, 20, chunk=True)
    write(state, 5, chunk=True)
    with pytest.raises(ValueError, match=r"cannot keep 22 of 25 rows: .* row 20"):
        state.roll_back(22)


def test_a_branch_shares_only_what_never_changes() -> None:
    state = mixed()
    for rows in (20, 30, 10):
        write(state, rows, chunk=True)
    for length in (20, 50, 60):
        other = state.branch(length, 80)
        assert [lane.offset for lane in other.lanes] == [length] * 3
        assert other.checkpoints == tuple(n for n in (20, 50, 60) if n <= length)
        assert other.lanes[0].arrays[0] is state._before(length)[-1].snapshots[0][1][0]
        write(other, 15, chunk=True)
        assert other.lanes[1].arrays[0][0, 0, : length + 15, 0].tolist() == list(
            range(length + 15)
        )
    assert state.lanes[1].arrays[0][0, 0, :60, 0].tolist() == list(range(60))
    assert state.checkpoints == (20, 50, 60)


def test_a_state_at_rest_holds_nothing_for_its_last_block() -> None:
    state = mixed()
    write(state, 20, chunk=True)
    write(state, 5, chunk=False)
    state.forget(20)
    assert state.nearest(20) == 20
    before = state.nbytes
    state.rest()
    assert state.nbytes == before - 4  # the recurrent array before the block
    assert state.nearest(24) == 0
    assert state.nearest(25) == 25


def test_checkpoints_of_the_same_tokens_are_taken_up_once() -> None:
    one, other = mixed(), mixed()
    for state, parts in ((one, (20, 30)), (other, (35, 15, 10))):
        for rows in parts:
            write(state, rows, chunk=True)
    one.adopt(other)
    assert one.checkpoints == (20, 35, 50)
    one.roll_back(35)
    assert one.lanes[0].arrays[0].item() == 35
