# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import mlx.core as mx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from splashpy.kernels.dynamic_causal_conv import dynamic_causal_conv


def case(
    length: int, channels: int, taps: int, group_size: int, *, seed: int = 0
) -> tuple[mx.array, mx.array, mx.array]:
    keys = mx.random.split(mx.random.key(seed), 3)
    groups = channels // group_size
    return (
        mx.random.normal((2, length, channels), key=keys[0]),
        mx.random.normal((2, length, taps, groups), key=keys[1]),
        mx.random.normal((taps, channels), key=keys[2]),
    )


def test_two_rows_of_one_channel_by_hand() -> None:
    x = mx.array([[[2.0], [5.0]]])
    dynamic = mx.array([[[[0.5], [9.0]], [[0.0], [-1.0]]]])
    base = mx.array([[1.0], [3.0]])
    # Row 0: (1 + 0.5) * 2, nothing before it. Row 1: 1 * 5 + (3 - 1) * 2.
    out = dynamic_causal_conv(x, dynamic, base, group_size=1)
    assert out.tolist() == [[[3.0], [9.0]]]


@given(
    length=st.integers(1, 9),
    groups=st.integers(1, 3),
    group_size=st.sampled_from([1, 2, 4]),
    taps=st.integers(1, 4),
)
def test_agrees_with_the_equation(
    length: int, groups: int, group_size: int, taps: int
) -> None:
    channels = groups * group_size
    x, dynamic, base = case(length, channels, taps, group_size)
    out = np.array(dynamic_causal_conv(x, dynamic, base, group_size=group_size))
    for b, t, c in np.ndindex(2, length, channels):
        expected = sum(
            (base[w, c].item() + dynamic[b, t, w, c // group_size].item())
            * x[b, t - w, c].item()
            for w in range(min(taps, t + 1))
        )
        assert out[b, t, c] == pytest.approx(expected, abs=1e-5)


@given(st.integers(0, 6))
def test_a_row_never_sees_a_later_one(changed: int) -> None:
    x, dynamic, base = case(7, 8, 3, 4)
    before = dynamic_causal_conv(x, dynamic, base, group_size=4)
    x[:, changed:] = 100.0
    dynamic[:, changed:] = -7.0
    after = dynamic_causal_conv(x, dynamic, base, group_size=4)
    assert mx.array_equal(before[:, :changed], after[:, :changed])


def test_a_base_of_one_and_no_correction_changes_nothing() -> None:
    x, _, _ = case(5, 8, 2, 4)
    base = mx.concatenate([mx.ones((1, 8)), mx.zeros((1, 8))])
    out = dynamic_causal_conv(x, mx.zeros((2, 5, 2, 2)), base, group_size=4)
    assert mx.array_equal(out, x)


def test_bf16_is_rounded_once_at_the_end() -> None:
    x, dynamic, base = case(8, 64, 2, 16)
    halves = [array.astype(mx.bfloat16) for array in (x, dynamic, base)]
    out = dynamic_causal_conv(*halves, group_size=16)
    wide = [array.astype(mx.float32) for array in halves]
    exact = dynamic_causal_conv(*wide, group_size=16)
    assert out.dtype == mx.bfloat16
    assert mx.array_equal(out, exact.astype(mx.bfloat16))


def test_shapes_that_do_not_fit_are_named() -> None:
    x, dynamic, base = case(5, 8, 2, 4)
    with pytest.raises(ValueError, match="does not divide 8 channels"):
        dynamic_causal_conv(x, dynamic, base, group_size=3)
    with pytest.raises(ValueError, match=r"needs dynamic \(2, 5, 2, 2\)"):
        dynamic_causal_conv(x, dynamic[:, :4], base, group_size=4)
