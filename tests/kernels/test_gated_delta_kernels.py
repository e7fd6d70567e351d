# SPDX-License-Identifier: Apache-2.0
"""Gated DeltaNet over a block, with the way back deferred."""

from __future__ import annotations

import mlx.core as mx
import numpy as np
import pytest
from kernels.kit import FLOATS, HALF_ULP, emulation, normal, wide
from mlx_lm.models.gated_delta import compute_g, gated_delta_ops, normalize_qk
from msl.stand_in import StandIn

from splashpy.kernels import gate
from splashpy.kernels.gated_delta import (
    Decay,
    Geometry,
    Pending,
    Rows,
    prework,
    replay,
    verify,
)

HEADS = Geometry(key_heads=1, value_heads=2, key_width=64, value_width=32)


def block(count: int, dtype: mx.Dtype, seed: int) -> tuple[mx.array, Rows]:
    keys = (count, HEADS.key_heads, HEADS.key_width)
    values = (count, HEADS.value_heads, HEADS.value_width)
    rows = Rows(
        normal(*keys, dtype=dtype, seed=seed, scale=0.12),
        normal(*values, dtype=dtype, seed=seed + 1),
        normal(count, HEADS.value_heads, dtype=dtype, seed=seed + 2),
        normal(count, HEADS.value_heads, dtype=dtype, seed=seed + 3),
    )
    return normal(*keys, dtype=dtype, seed=seed + 4, scale=0.1), rows


DECAY = Decay(normal(2, seed=90), normal(2, seed=91))
STATE = normal(*HEADS.shape, seed=92)


def run(state: np.ndarray, queries: mx.array, rows: Rows) -> tuple:
    """Outputs and the last state in float64."""
    soft = np.logaddexp(wide(rows.decay) + wide(DECAY.bias), 0)
    decay = np.exp(-np.exp(wide(DECAY.log_decay)) * soft)
    rate = 1 / (1 + np.exp(-wide(rows.rate)))
    state, outputs = state.copy(), []
    for t in range(rows.keys.shape[0]):
        key = np.repeat(wide(rows.keys)[t], 2, 0)
        state *= decay[t][:, None, None]
        change = wide(rows.values)[t] - np.einsum("hvk,hk->hv", state, key)
        state += np.einsum("hv,hk->hvk", rate[t][:, None] * change, key)
        outputs.append(
            np.einsum("hvk,hk->hv", state, np.repeat(wide(queries)[t], 2, 0))
        )
    return np.array(outputs), state


def check(got: mx.array, wanted: np.ndarray) -> None:
    slack = 3e-5 + 1.001 * HALF_ULP[got.dtype] * np.abs(wanted)
    assert np.all(np.abs(wide(got) - wanted) <= slack)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("rows", [1, 2, 8, 16])
def test_a_block_on_a_state(device: StandIn, rows: int, dtype: mx.Dtype) -> None:
    device.emulation = emulation(rows)
    queries, block_rows = block(rows, dtype, 1)
    out, before = verify(Pending(STATE), queries, block_rows, DECAY)
    wanted, _ = run(wide(STATE), queries, block_rows)
    assert mx.array_equal(before, STATE)
    check(out, wanted)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("kept", [0, 1, 5, 8])
def test_a_block_after_the_kept_rows_of_another(
    device: StandIn, kept: int, dtype: mx.Dtype
) -> None:
    device.emulation = emulation(kept)
    _, old = block(8, dtype, 1)
    queries, rows = block(4, dtype, 11)
    pending = Pending(STATE, old, kept)
    out, before = verify(pending, queries, rows, DECAY)
    base = run(wide(STATE), old.keys, old.first(kept))[1] if kept else wide(STATE)
    check(before, base)
    check(out, run(base, queries, rows)[0])
    # What the block is run on is bit for bit what somebody else would be given.
    assert mx.array_equal(before, replay(pending, DECAY))
    with gate.ruled(None):
        check(replay(pending, DECAY), base)
        check(verify(pending, queries, rows, DECAY)[0], run(base, queries, rows)[0])


def test_a_row_does_not_depend_on_the_rows_after_it(device: StandIn) -> None:
    queries, rows = block(7, mx.bfloat16, 5)
    whole, _ = verify(Pending(STATE), queries, rows, DECAY)
    part, _ = verify(Pending(STATE), queries[:3], rows.first(3), DECAY)
    assert mx.array_equal(part, whole[:3])


def test_replayed_blocks_are_what_one_long_block_is(device: StandIn) -> None:
    _, rows = block(9, mx.float32, 5)
    whole = replay(Pending(STATE, rows, 9), DECAY)
    late = Rows(*(part[4:] for part in rows.parts))
    half = replay(Pending(STATE, rows, 4), DECAY)
    assert mx.array_equal(replay(Pending(half, late, 5), DECAY), whole)


def test_the_reference_is_what_mlx_lm_computes() -> None:
    queries, rows = block(6, mx.float32, 5)
    out, _ = verify(Pending(STATE), queries, rows, DECAY)
    gates = compute_g(DECAY.log_decay, rows.decay, DECAY.bias)
    parts = (queries, rows.keys, rows.values, gates, mx.sigmoid(rows.rate))
    wanted, state = gated_delta_ops(*(part[None] for part in parts), STATE[None])
    assert mx.allclose(out, wanted[0], atol=2e-5)
    assert mx.allclose(replay(Pending(STATE, rows, 6), DECAY), state[0], atol=2e-5)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize(("rows", "kept"), [(1, 0), (3, 2), (8, 5), (16, 0)])
def test_what_comes_before_the_recurrence(
    device: StandIn, rows: int, kept: int, dtype: mx.Dtype
) -> None:
    device.emulation = emulation(rows)
    channels = 2 * 64 + 2 * 32
    before = normal(8, channels, dtype=dtype, seed=1)
    inputs = normal(rows, channels, dtype=dtype, seed=2)
    weight = normal(channels, 4, dtype=dtype, seed=3)
    got = prework(before, kept, inputs, weight, HEADS)
    window = np.concatenate([wide(before)[kept : kept + 3], wide(inputs)])
    total = sum(wide(weight)[:, w] * window[w : w + rows] for w in range(4))
    opened = total / (1 + np.exp(-total))
    assert mx.array_equal(got.window, mx.concatenate([before[kept : kept + 3], inputs]))
    ulp = 2 * HALF_ULP[dtype]
    sizes = np.abs(opened) + 1e-6
    assert np.all(
        np.abs(wide(got.values).reshape(rows, -1) - opened[:, 128:])
        <= ulp * sizes[:, 128:] + 2e-6
    )
    for part, first, scale in ((got.queries, 0, 1 / 64), (got.keys, 64, 1 / 8)):
        head = opened[:, first : first + 64]
        norm = head * scale / np.sqrt((head**2).mean(-1, keepdims=True) + 1e-6 / 64)
        error = np.abs(wide(part)[:, 0] - norm)
        # The norm reads rows that were rounded.
        assert np.all(error <= 3 * ulp * np.abs(norm) + 4 * ulp * scale)


def test_the_reference_before_the_recurrence_is_what_mlx_lm_computes() -> None:
    channels = 2 * 64 + 2 * 32
    before, inputs = normal(3, channels, seed=1), normal(5, channels, seed=2)
    weight = normal(channels, 4, seed=3)
    got = prework(before, 0, inputs, weight, HEADS)
    rows = mx.concatenate([before, inputs])[None]
    convolved = mx.conv1d(rows, weight[..., None], groups=channels)[0]
    opened = convolved * mx.sigmoid(convolved)
    queries, keys = normalize_qk(
        opened[:, None, :64], opened[:, None, 64:128], inv_scale=64**-0.5, eps=1e-6
    )
    assert mx.allclose(got.queries, queries, atol=1e-6)
    assert mx.allclose(got.keys, keys, atol=1e-6)
    assert mx.allclose(got.values.flatten(1), opened[:, 128:], atol=1e-5)
