# SPDX-License-Identifier: Apache-2.0
"""Weights in bfloat16, as on a GPU.

Experts are left out: on a CPU, mlx multiplies gathered matrices in float32 only.
"""

from __future__ import annotations

import mlx.core as mx
import pytest
import tiny

from splashpy.models.recurrent_lane import LaneRecurrent
from splashpy.models.target import MlxLmTarget

FAMILIES = ("llama", "qwen3", "qwen3_5", "gemma4", "muse_glimmer")
PROMPT = mx.arange(30) * 7 % 251
BLOCK = mx.arange(100, 108)

# Two units in the last place of logits up to 8 (bfloat16 keeps 8 bits).
TOLERANCE = 2 * 2.0 ** (2 - 7)


@pytest.fixture(scope="module", params=FAMILIES)
def target(request: pytest.FixtureRequest) -> MlxLmTarget:
    network = tiny.model(request.param)
    network.set_dtype(mx.bfloat16)
    return tiny.target_of(network, request.param)


def test_a_block_equals_single_rows_in_half_precision(target: MlxLmTarget) -> None:
    together, apart = target.new_state(64), target.new_state(64)
    for state in (together, apart):
        target.forward(state, PROMPT, rows=0)
    block = target.forward(together, BLOCK, rows=8).logits
    rows = [target.forward(apart, BLOCK[i : i + 1], rows=1).logits for i in range(8)]
    assert mx.allclose(block, mx.concatenate(rows), rtol=0, atol=TOLERANCE)


@pytest.mark.parametrize("kept", range(9))
def test_a_roll_back_is_exact_in_half_precision(kept: int, target: MlxLmTarget) -> None:
    state, fresh = target.new_state(64), target.new_state(64)
    target.forward(state, PROMPT, rows=0)
    target.forward(state, BLOCK, rows=8)
    state.roll_back(30 + kept)
    target.forward(fresh, PROMPT, rows=0)
    if kept:
        target.forward(fresh, BLOCK[:kept], rows=kept)
    after = target.forward(state, BLOCK[:3], rows=3).logits
    expected = target.forward(fresh, BLOCK[:3], rows=3).logits
    assert mx.allclose(after, expected, rtol=0, atol=TOLERANCE)


def test_a_recurrent_state_stays_in_float32() -> None:
    network = tiny.model("qwen3_5")
    network.set_dtype(mx.bfloat16)
    target = tiny.target_of(network, "qwen3_5")
    assert target._recorder is not None  # its recurrence can be run again, bit for bit
    state = target.new_state(8)
    target.forward(state, BLOCK, rows=8)
    state.roll_back(3)
    lane = state.lanes[0]
    assert isinstance(lane, LaneRecurrent)
    assert [array.dtype for array in lane.arrays] == [mx.bfloat16, mx.float32]
