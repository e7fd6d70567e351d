# SPDX-License-Identifier: Apache-2.0
"""Products of a few rows with a quantized matrix."""

from __future__ import annotations

import mlx.core as mx
import numpy as np
import pytest
from kernels.kit import HALF_ULP, assert_near, emulation, normal, wide
from msl.stand_in import StandIn

from splashpy.kernels import metal
from splashpy.kernels import qmm_rows as module
from splashpy.kernels.qmm_rows import Packed, gated_rows, qmm_rows

F32, BF16, F16 = mx.float32, mx.bfloat16, mx.float16


def packed(
    outputs: int,
    inputs: int,
    bits: int,
    group: int,
    dtype: mx.Dtype,
    seed: int = 0,
) -> Packed:
    weight = normal(outputs, inputs, dtype=dtype, seed=seed)
    parts = mx.quantize(weight, group_size=group, bits=bits)
    return Packed(*parts, group, bits)


def exact(x: mx.array, matrix: Packed) -> tuple[np.ndarray, np.ndarray]:
    """The product in float64, and the sum of the absolute values in it."""
    bits = matrix.bits
    words = np.array(matrix.words)[..., None] >> np.arange(0, 32, bits, dtype=np.uint32)
    codes = (words & (2**bits - 1)).reshape(matrix.outputs, -1).astype(np.float64)
    scales = np.repeat(wide(matrix.scales), matrix.group_size, 1)
    biases = np.repeat(wide(matrix.biases), matrix.group_size, 1)
    rows = wide(x)
    size = np.abs(rows) @ (np.abs(scales * codes) + np.abs(biases)).T
    return rows @ (scales * codes + biases).T, size


@pytest.mark.parametrize(
    ("bits", "group", "dtype", "rows"),
    [
        (4, 64, BF16, (2, 3, 4, 5, 6, 7, 8)),
        (4, 64, BF16, (9, 10, 11, 12, 13, 14, 15, 16)),
        (4, 64, F32, (2, 5, 8)),
        (4, 32, F16, (8,)),
        (4, 32, F32, (16,)),
        (4, 128, BF16, (8,)),
        (8, 32, BF16, (3,)),
        (8, 64, BF16, (2, 8)),
        (8, 64, F32, (9, 16)),
        (8, 128, F32, (8,)),
    ],
)
def test_rows_times_a_packed_matrix(
    device: StandIn, bits: int, group: int, dtype: mx.Dtype, rows: tuple[int, ...]
) -> None:
    matrix = packed(28, 256, bits, group, dtype)  # the last tile is half empty
    whole = normal(16, 256, dtype=dtype, seed=1)
    for count in rows:
        device.emulation = emulation(count)
        out = qmm_rows(whole[:count], matrix)
        assert_near(out, *exact(whole[:count], matrix))
        # Another number of rows leaves the bits of a row as they are.
        again = qmm_rows(whole[: max(2, count - 1)], matrix)
        common = min(count, again.shape[0])
        assert mx.array_equal(out[:common], again[:common])
    assert len(device.reports) == 2 * len(rows)


def test_one_row_and_seventeen_are_left_to_mlx(device: StandIn) -> None:
    matrix = packed(16, 64, 4, 64, F32)
    for rows in (1, 17):
        qmm_rows(normal(rows, 64), matrix)
    assert device.reports == []


def test_scales_may_be_negative_and_rows_anything(device: StandIn) -> None:
    matrix = packed(28, 256, 4, 64, F32)
    turned = Packed(matrix.words, -matrix.scales, mx.zeros_like(matrix.biases), 64, 4)
    x = normal(8, 256, scale=1e4)
    x[1] = 0
    x[2] *= 1e-30
    assert_near(qmm_rows(x, turned), *exact(x, turned))


def test_a_narrow_pipeline_gives_the_same_product_up_to_rounding(
    device: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    matrix, x = packed(28, 256, 4, 64, F32), normal(5, 256)
    monkeypatch.setitem(metal._limits, "qmm_rows", 96)
    assert_near(qmm_rows(x, matrix), *exact(x, matrix))


@pytest.mark.parametrize(("dtype", "rows"), [(F32, 8), (BF16, 11)])
def test_a_gated_pair_of_products(device: StandIn, dtype: mx.Dtype, rows: int) -> None:
    opening, value = (packed(20, 128, 4, 64, dtype, seed=s) for s in (3, 4))
    x = normal(rows, 128, dtype=dtype, seed=5, scale=0.3)
    out = gated_rows(x, opening, value)
    (gates, gate_size), (values, value_size) = exact(x, opening), exact(x, value)
    wanted = gates / (1 + np.exp(-gates)) * values
    # Both products are rounded before they meet.
    ulps = 2 * HALF_ULP[dtype]
    slack = ulps * np.abs(gates * values) * 2.2 + 8 * HALF_ULP[F32] * (
        gate_size * (np.abs(values) + 1) + value_size * (np.abs(gates) + 1)
    )
    assert np.all(np.abs(wide(out) - wanted) <= slack + ulps * np.abs(wanted))


def test_tiles_of_a_vocabulary(device: StandIn) -> None:
    # Four tiles for a simdgroup, as for a head; the last threadgroup has one.
    matrix, x = packed(72, 64, 4, 32, F32), normal(3, 64, seed=2)
    parts = [matrix.words, matrix.scales, matrix.biases]
    out = module._launch(module._ROWS, x, matrix, 4, 4, parts)
    assert_near(out, *exact(x, matrix))


def test_a_matrix_with_very_many_inputs(device: StandIn) -> None:
    matrix, x = packed(16, 16_384, 4, 32, F32), normal(3, 16_384, seed=2)
    assert_near(qmm_rows(x, matrix), *exact(x, matrix), sum_ulps=16)
