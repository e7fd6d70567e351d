# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import math

import mlx.core as mx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from splashpy.cli.packing_options import BITS, GROUP_SIZES
from splashpy.errors import ModelKindError
from splashpy.models.arrays import to_mlx
from splashpy.package.weights.tensor import Tensor, to_bfloat16, to_float32
from splashpy.packing.quantize import PackedTensor, quantize

F = np.float32


def half_away(x: np.float32) -> float:
    return math.copysign(math.floor(abs(float(x)) + 0.5), float(x))


def by_hand(group: np.ndarray, bits: int) -> tuple[np.float32, np.float32, list[int]]:
    """The rule for one group, number by number."""
    steps = 2**bits - 1
    low, high = group.min(), max(F(0), group.max())
    scale = max((high - low) / F(steps), F(1e-7))
    edge, scale = (low, scale) if abs(low) > abs(high) else (high, -scale)
    count = half_away(edge / scale)
    bias = F(0)
    if count:
        scale, bias = edge / F(count), edge
    codes = [min(max(half_away((w - bias) / scale), 0), steps) for w in group]
    return F(scale), F(bias), [int(code) for code in codes]


def codes_of(packed: PackedTensor, bits: int) -> np.ndarray:
    words = packed.weight.data
    shifts = np.arange(0, 32, bits, dtype=np.uint32)
    return ((words[..., None] >> shifts) & (2**bits - 1)).reshape(len(words), -1)


# Multiples of 1/8 with few bits: many lie exactly on a half step of some group.
weights = st.lists(st.integers(-64, 64).map(lambda n: n / 8), min_size=32, max_size=32)


@given(groups=st.lists(weights, min_size=1, max_size=4), bits=st.sampled_from(BITS))
def test_every_group_is_what_the_rule_gives_by_hand(
    groups: list[list[float]], bits: int
) -> None:
    values = np.array(groups, F)

    packed = quantize(Tensor("F32", values), group_size=32, bits=bits, name="w")

    codes = codes_of(packed, bits)
    for row, group in enumerate(values):
        scale, bias, expected = by_hand(group, bits)
        assert packed.scales.data[row, 0] == scale
        assert packed.biases.data[row, 0] == bias
        assert codes[row].tolist() == expected


@pytest.mark.parametrize("bits", BITS)
@pytest.mark.parametrize("group_size", GROUP_SIZES)
def test_mlx_reads_what_was_packed(bits: int, group_size: int) -> None:
    values = np.random.default_rng(0).normal(size=(3, 16, 256)).astype(F)
    packed = quantize(
        to_bfloat16(values), group_size=group_size, bits=bits, name="experts"
    )

    read = mx.dequantize(
        to_mlx(packed.weight),
        to_mlx(packed.scales),
        to_mlx(packed.biases),
        group_size=group_size,
        bits=bits,
    )

    step = np.abs(to_float32(packed.scales)).max()
    error = np.abs(np.array(read.astype(mx.float32)) - values).max()
    # A step, since one end of a range may be cut by half of one, and bfloat16 roundings
    # of scale, bias and result of values up to 5.
    assert error <= step + 5 * 2.0**-7
    assert packed.weight.shape == (3, 16, 256 * bits // 32)


def test_a_group_of_negative_weights_keeps_zero_in_its_range() -> None:
    """The rule of MLX on a CPU would span -2 to -1 and differ in every code."""
    values = np.linspace(-2, -1, 32, dtype=F)[None]

    packed = quantize(Tensor("F32", values), group_size=32, bits=4, name="w")

    assert packed.scales.data[0, 0] == F(2) / F(15)
    assert packed.biases.data[0, 0] == F(-2)


def test_large_tensors_are_the_same_as_their_rows() -> None:
    """The work is cut into pieces, which must not show."""
    values = np.random.default_rng(1).normal(size=(5000, 128)).astype(F)
    whole = quantize(Tensor("F32", values), group_size=64, bits=4, name="w")

    for row in (0, 2047, 2048, 4999):
        part = quantize(
            Tensor("F32", values[row : row + 1]), group_size=64, bits=4, name="w"
        )
        assert np.array_equal(whole.weight.data[row], part.weight.data[0])
        assert np.array_equal(whole.scales.data[row], part.scales.data[0])


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_what_is_no_number_is_refused_by_name(bad: float) -> None:
    values = np.ones((2, 64), F)
    values[1, 3] = bad

    with pytest.raises(ModelKindError, match=r"layers\.7"):
        quantize(Tensor("F32", values), group_size=64, bits=4, name="layers.7")
