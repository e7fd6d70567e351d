# SPDX-License-Identifier: Apache-2.0
"""The kernels around a drafter's sublayers: convolution, residual, norm."""

from __future__ import annotations

import mlx.core as mx
import numpy as np
import pytest
from kernels.kit import FLOATS, assert_near, emulation, normal, wide
from msl.stand_in import StandIn

from splashpy.kernels import metal
from splashpy.kernels.add_rms_norm import add_rms_norm
from splashpy.kernels.dynamic_causal_conv import conv_finish, conv_prepare

EPS = 1e-6


def conv_case(
    rows: int, dtype: mx.Dtype, channels: int = 96, taps: int = 2, group: int = 16
) -> dict[str, mx.array]:
    return {
        "x": normal(rows, channels, dtype=dtype, seed=1),
        "predicted": normal(rows, 2 * taps, channels // group, dtype=dtype, seed=2),
        "base": normal(taps, channels, dtype=dtype, seed=3),
        "residual": normal(rows, channels, dtype=dtype, seed=4),
    }


def convolved(case: dict[str, mx.array], side: int) -> tuple[np.ndarray, np.ndarray]:
    """The convolution in float64, and the sum of the absolute products."""
    x, base, predicted = (wide(case[name]) for name in ("x", "base", "predicted"))
    taps, channels = base.shape
    group = channels // predicted.shape[-1]
    total, size = np.zeros_like(x), np.zeros_like(x)
    for w in range(min(taps, x.shape[0])):
        extra = np.repeat(predicted[:, side * taps + w], group, axis=-1)
        product = (base[w] + extra)[w:] * x[: x.shape[0] - w]
        total[w:] += product
        size[w:] += (np.abs(base[w]) + np.abs(extra))[w:] * np.abs(x[: x.shape[0] - w])
    return total, size


def normed(stream: mx.array, weight: mx.array) -> np.ndarray:
    rows = wide(stream)
    scale = 1 / np.sqrt((rows**2).mean(-1, keepdims=True) + EPS)
    return rows * scale * wide(weight)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("rows", [1, 2, 7, 8, 16, 17])
def test_prepare(device: StandIn, rows: int, dtype: mx.Dtype) -> None:
    device.emulation = emulation(rows)
    case = conv_case(rows, dtype)
    out = conv_prepare(case["x"], case["predicted"], case["base"], group_size=16)
    assert_near(out, *convolved(case, 0))


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("rows", [1, 2, 7, 8, 16, 17])
def test_finish_and_norm(device: StandIn, rows: int, dtype: mx.Dtype) -> None:
    device.emulation = emulation(rows)
    case, weight = conv_case(rows, dtype), normal(96, dtype=dtype, seed=5)
    arrays = (case["x"], case["predicted"], case["base"], case["residual"])
    stream, after = conv_finish(*arrays, (weight, EPS), group_size=16)
    total, size = convolved(case, 1)
    residual = wide(case["residual"])
    assert_near(stream, total + residual, size + np.abs(residual))
    assert after is not None
    wanted = normed(stream, weight)
    assert_near(after, wanted, np.abs(wanted), sum_ulps=16)
    plain, none = conv_finish(*arrays, group_size=16)
    assert none is None
    assert mx.array_equal(plain, stream)


@pytest.mark.parametrize("taps", [1, 3, 4])
def test_other_numbers_of_taps(device: StandIn, taps: int) -> None:
    case = conv_case(3, mx.float32, channels=40, taps=taps, group=8)
    out = conv_prepare(case["x"], case["predicted"], case["base"], group_size=8)
    assert_near(out, *convolved(case, 0))


def test_blocks_of_a_batch_do_not_see_each_other(device: StandIn) -> None:
    case = conv_case(6, mx.float32)
    two = [
        case[name].reshape(2, 3, *case[name].shape[1:]) for name in ("x", "predicted")
    ]
    out = conv_prepare(*two, case["base"], group_size=16)
    for block in range(2):
        alone = conv_prepare(*(a[block] for a in two), case["base"], group_size=16)
        assert mx.array_equal(out[block], alone)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize(("rows", "channels"), [(1, 64), (8, 200), (17, 33)])
def test_add_rms_norm(
    device: StandIn, rows: int, channels: int, dtype: mx.Dtype
) -> None:
    device.emulation = emulation(channels)
    x, residual = normal(rows, channels, dtype=dtype), normal(rows, channels, seed=1)
    residual, weight = residual.astype(dtype), normal(channels, dtype=dtype, seed=2)
    stream, after = add_rms_norm(x, residual, weight, EPS)
    total = wide(x) + wide(residual)
    assert_near(stream, total, np.abs(wide(x)) + np.abs(wide(residual)))
    wanted = normed(stream, weight)
    assert_near(after, wanted, np.abs(wanted), sum_ulps=16)


def test_a_threadgroup_stays_within_the_limit_of_its_pipeline(
    device: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    x, weight = normal(2, 640, seed=1), normal(640, seed=2)
    wanted = add_rms_norm(x, x, weight, EPS)
    monkeypatch.setitem(metal._limits, "add_rms_norm", 100)
    device.emulation = emulation(0)
    got = add_rms_norm(x, x, weight, EPS)
    assert mx.array_equal(got[0], wanted[0])
    assert mx.allclose(got[1], wanted[1], rtol=1e-6)


def test_a_row_does_not_depend_on_the_others(device: StandIn) -> None:
    case, weight = conv_case(9, mx.bfloat16), normal(96, dtype=mx.bfloat16, seed=5)
    names = ("x", "predicted", "base", "residual")
    whole = conv_finish(*(case[n] for n in names), (weight, EPS), group_size=16)
    for rows in (1, 4, 8):
        cut = {name: case[name][:rows] for name in names} | {"base": case["base"]}
        part = conv_finish(*(cut[n] for n in names), (weight, EPS), group_size=16)
        for some, all_of_them in zip(part, whole, strict=True):
            assert mx.array_equal(some, all_of_them[:rows])
