# SPDX-License-Identifier: Apache-2.0
"""Rows in 8 bits: rounded once, each for itself, and cut like any other."""

from __future__ import annotations

import mlx.core as mx
import pytest
import tiny
from hypothesis import given
from hypothesis import strategies as st

from splashpy.models.attention_lanes import LaneKV
from splashpy.models.loading import make_target
from splashpy.models.quantized_lane import GROUP, LaneQ8


def rows(count: int, seed: int = 0, width: int = 64) -> mx.array:
    """[1, 2, count, width] numbers of very different sizes."""
    keys = mx.random.split(mx.random.key(seed))
    size = mx.exp(3 * mx.random.normal((1, 2, count, 1), key=keys[0]))
    return size * mx.random.normal((1, 2, count, width), key=keys[1])


def written(lane: LaneKV, *blocks: mx.array) -> list[mx.array]:
    found: tuple[mx.array, ...] = ()
    for block in blocks:
        found = lane.update_and_fetch(block, -block)
    return list(found)


def equal(ours: list[mx.array], theirs: list[mx.array]) -> bool:
    pairs = zip(ours, theirs, strict=True)
    return all(mx.array_equal(a, b).item() for a, b in pairs)


@pytest.mark.parametrize("dtype", [mx.float32, mx.bfloat16])
def test_a_block_leaves_the_bits_its_rows_leave_one_by_one(dtype: mx.Dtype) -> None:
    block = rows(9).astype(dtype)
    together, apart = LaneQ8(4), LaneQ8(4)
    whole = written(together, block)
    singles = written(apart, *mx.split(block, 9, axis=2))
    assert equal(whole, singles)
    assert equal(
        [a[:, :, :9] for a in together.arrays], [a[:, :, :9] for a in apart.arrays]
    )


@given(
    st.integers(1, 20),
    st.lists(st.tuples(st.integers(1, 90), st.integers(0, 90)), max_size=6),
)
def test_any_series_of_writes_and_roll_backs_equals_one_write(
    capacity: int, steps: list[tuple[int, int]]
) -> None:
    lane, kept = LaneQ8(capacity), rows(0)
    for seed, (count, cut) in enumerate(steps):
        kept = mx.concatenate([kept, rows(count, seed)], axis=2)
        found = written(lane, rows(count, seed))
        assert equal(found, written(LaneQ8(1), kept))
        kept = kept[:, :, : max(kept.shape[2] - cut, 0)]
        lane.roll_back(kept.shape[2])


@given(st.integers(0, 2**32 - 1))
def test_a_number_moves_by_less_than_a_step_of_its_group(seed: int) -> None:
    block = rows(5, seed)
    keys, values = written(LaneQ8(5), block)
    groups = block.reshape(1, 2, 5, -1, GROUP)
    step = (groups.max(-1, keepdims=True) - groups.min(-1, keepdims=True)) / 255
    moved = mx.abs(keys - block).reshape(groups.shape)
    assert mx.all(moved <= 1.01 * step)
    assert mx.allclose(keys, -values, rtol=0, atol=2 * step.max().item())


def test_it_takes_the_bytes_that_were_promised() -> None:
    lane, plain = LaneQ8(256), LaneKV(256)
    block = rows(1, width=256).astype(mx.bfloat16)
    for one in (lane, plain):
        one.update_and_fetch(block, block)
    # Two heads of 256 channels: a byte each, 16-bit scale and bias for every 64.
    assert lane.row_nbytes == 2 * 2 * (256 + 4 * 4)
    assert plain.row_nbytes == 2 * 2 * 512
    assert sum(a.nbytes for a in lane.held) == 256 * lane.row_nbytes


def test_room_is_reserved_once_for_the_capacity() -> None:
    lane = LaneQ8(300)
    for seed in range(30):
        written(lane, rows(10, seed))
        assert {a.shape[2] for a in lane.arrays} == {300}


@pytest.mark.parametrize("width", [80, 96, 16])
def test_heads_that_do_not_divide_stay_as_they_are(width: int) -> None:
    lane, block = LaneQ8(8), rows(3, width=width)
    assert equal(written(lane, block), [block, -block])
    assert not lane.rounds


def test_only_full_attention_is_rounded() -> None:
    network = tiny.model("qwen3_5", head_dim=64)
    target = make_target(network, "qwen3_5", 512, 0)
    before = target.facts
    assert (before.kv, before.kv_bytes_per_token) == ("bf16", 2 * 2 * 64 * 4)
    assert target.round_rows()
    assert (target.facts.kv, target.facts.kv_bytes_per_token) == ("q8", 2 * 2 * 72)
    kinds = [type(lane).__name__ for lane in target.new_state(8).lanes]
    assert kinds == ["LaneRecurrent"] * 3 + ["LaneQ8"]


def test_a_target_whose_heads_do_not_divide_is_left_alone() -> None:
    target = tiny.target("llama")
    facts = target.facts
    assert not target.round_rows()
    assert target.facts == facts
    assert all(type(lane) is LaneKV for lane in target.new_state(8).lanes)
