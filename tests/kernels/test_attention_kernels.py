# SPDX-License-Identifier: Apache-2.0
"""Attention of a few rows over many keys."""

from __future__ import annotations

import mlx.core as mx
import numpy as np
import pytest
from kernels.kit import HALF_ULP, emulation, normal, wide
from msl.stand_in import StandIn

from splashpy.kernels import metal
from splashpy.kernels.attention_rows import (
    Blocking,
    PackedHeads,
    attention_rows,
    attention_rows_q8,
)

F32, BF16 = mx.float32, mx.bfloat16


def exact(
    queries: mx.array, keys: mx.array, values: mx.array, *, causal: bool
) -> np.ndarray:
    q, k, v = (wide(array)[0] for array in (queries, keys, values))
    share = q.shape[0] // k.shape[0]
    k, v = np.repeat(k, share, 0), np.repeat(v, share, 0)
    scores = q @ k.swapaxes(1, 2) / np.sqrt(q.shape[-1])
    rows, count = scores.shape[1:]
    if causal:
        sees = np.arange(count)[None] <= np.arange(count - rows, count)[:, None]
        scores = np.where(sees, scores, -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return (weights / weights.sum(-1, keepdims=True)) @ v


def check(got: mx.array, wanted: np.ndarray) -> None:
    # Scores of size one and weights that sum to one: a few roundings of each.
    slack = 2e-5 + 1.001 * HALF_ULP[got.dtype] * np.abs(wanted)
    assert np.all(np.abs(wide(got)[0] - wanted) <= slack)


def case(
    heads: int, groups: int, rows: int, count: int, width: int, dtype: mx.Dtype
) -> tuple[mx.array, mx.array, mx.array]:
    return (
        normal(1, heads, rows, width, dtype=dtype, seed=1),
        normal(1, groups, count, width, dtype=dtype, seed=2),
        normal(1, groups, count, width, dtype=dtype, seed=3),
    )


@pytest.mark.parametrize(
    ("width", "dtype", "heads", "groups", "rows", "count", "causal"),
    [
        (64, F32, 2, 1, 3, 3, True),  # nothing before the block
        (64, F32, 1, 1, 3, 300, True),  # a block of keys ends inside a step
        (64, BF16, 4, 2, 5, 97, True),
        (64, BF16, 2, 2, 16, 40, False),
        (128, F32, 3, 1, 2, 161, False),
        (128, BF16, 4, 1, 8, 70, True),
        (256, F32, 2, 1, 5, 49, True),
        (256, BF16, 6, 1, 8, 33, True),
    ],
)
def test_a_few_rows_over_many_keys(
    device: StandIn,
    width: int,
    dtype: mx.Dtype,
    heads: int,
    groups: int,
    rows: int,
    count: int,
    causal: bool,
) -> None:
    device.emulation = emulation(rows)
    arrays = case(heads, groups, rows, count, width, dtype)
    got = attention_rows(*arrays, width**-0.5, causal=causal)
    check(got, exact(*arrays, causal=causal))
    assert len(device.reports) == 2


def test_keys_may_be_views_of_larger_buffers(device: StandIn) -> None:
    arrays = case(2, 2, 3, 50, 64, F32)
    wanted = attention_rows(*arrays, 0.125, causal=True)
    device.gaps = frozenset({"queries", "keys", "values"})
    assert mx.array_equal(attention_rows(*arrays, 0.125, causal=True), wanted)


@pytest.mark.parametrize(("width", "dtype"), [(64, F32), (128, BF16), (256, BF16)])
def test_keys_and_values_in_eight_bits(
    device: StandIn, width: int, dtype: mx.Dtype
) -> None:
    queries, keys, values = case(2, 1, 4, 60, width, dtype)
    packed = [
        PackedHeads(*mx.quantize(part, group_size=64, bits=8))
        for part in (keys, values)
    ]
    device.gaps = frozenset({"key_words", "key_scales", "key_biases"})
    got = attention_rows_q8(queries, *packed, width**-0.5, causal=True)
    rows = [
        mx.dequantize(
            p.words, p.scales.astype(F32), p.biases.astype(F32), group_size=64, bits=8
        )
        for p in packed
    ]
    check(got, exact(queries, *rows, causal=True))
    assert len(device.reports) == 2


def test_a_row_does_not_depend_on_the_rows_after_it(device: StandIn) -> None:
    queries, keys, values = case(2, 1, 6, 600, 64, BF16)
    whole = attention_rows(queries, keys, values, 0.125, causal=True)
    cut = (queries[:, :, :3], keys[:, :, :597], values[:, :, :597])
    part = attention_rows(*cut, 0.125, causal=True)
    assert mx.array_equal(part, whole[:, :, :3])


def test_infinite_scores_leave_numbers(device: StandIn) -> None:
    queries, keys, values = case(2, 1, 4, 40, 64, F32)
    got = attention_rows(queries * 1e4, keys * 1e4, values, 1.0, causal=True)
    assert not mx.any(mx.isnan(got)).item()


def test_a_narrow_pipeline_divides_the_rows(
    device: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(metal._limits, "attention_rows", 64)
    arrays = case(4, 1, 6, 40, 64, F32)
    check(attention_rows(*arrays, 0.125, causal=True), exact(*arrays, causal=True))


def test_a_verify_pass_over_a_long_context_fills_the_device() -> None:
    # Qwen3.8-27B: 24 heads on 4, 256 channels, eight rows over 32k.
    plan = Blocking.of(8, 6, 4, 32_768, 256, "attention_rows")
    assert plan.blocks * 4 >= 100
    assert plan.threads <= metal.MOST_THREADS
    assert plan.chunk * plan.blocks >= 32_768
