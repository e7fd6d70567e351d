# SPDX-License-Identifier: Apache-2.0
"""What the kernel tests share: inputs, float64, and what a rounding may change."""

from __future__ import annotations

import mlx.core as mx
import numpy as np
from msl.emulator import REDUCTIONS, Emulation

FLOATS = [mx.float32, mx.bfloat16]

HALF_ULP = {mx.float32: 2.0**-24, mx.float16: 2.0**-11, mx.bfloat16: 2.0**-8}
"""Largest relative error of one rounding."""


def emulation(seed: int) -> Emulation:
    """A course of the lanes, with the reduction order that goes with its number."""
    return Emulation(seed=seed, reduction=REDUCTIONS[seed % len(REDUCTIONS)])


def normal(
    *shape: int, dtype: mx.Dtype = mx.float32, seed: int = 0, scale: float = 1.0
) -> mx.array:
    return (scale * mx.random.normal(shape, key=mx.random.key(seed))).astype(dtype)


def wide(array: mx.array) -> np.ndarray:
    """The numbers of an array in float64."""
    return np.array(array.astype(mx.float32)).astype(np.float64)


def assert_near(
    got: mx.array,
    wanted: np.ndarray,
    magnitude: np.ndarray | float,
    *,
    sum_ulps: float = 8,
) -> None:
    """Hold a result to float64.

    Args:
        got: what a kernel computed.
        wanted: the same in float64.
        magnitude: sum of the absolute values of everything added up, per element.
        sum_ulps: float32 roundings of that size that the sum may be off by.
    """
    error = np.abs(wide(got) - wanted)
    sums = sum_ulps * HALF_ULP[mx.float32] * magnitude
    last = HALF_ULP[got.dtype] * (np.abs(wanted) + sums)
    assert np.all(error <= sums + last * 1.001), (
        f"off by {error.max():.3g} where {np.max(sums + last):.3g} is allowed"
    )
