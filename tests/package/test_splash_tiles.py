# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import mlx.core as mx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from splashpy.package.splash.tiles import tile, untile


def flat(planes: tuple[np.ndarray, ...]) -> np.ndarray:
    return np.concatenate([plane.view(np.uint8).reshape(-1) for plane in planes])


def test_an_element_lies_where_the_published_example_says() -> None:
    """Row 300, column 70 of 512 x 128: low half of byte 25987, and its two numbers."""
    section = np.zeros(36864, np.uint8)
    section[25987] = 0xA7
    section[34392:34394] = (0x34, 0x12)
    section[36440:36442] = (0x78, 0x56)

    weight, scales, biases = untile(section, 512, 128, 4)

    assert (weight[300, 70 // 8] >> 4 * (70 % 8)) & 15 == 7
    assert (weight[300, 70 // 8] >> 4 * (71 % 8)) & 15 == 10
    assert (scales[300, 1], biases[300, 1]) == (0x1234, 0x5678)
    assert np.count_nonzero(weight) == 1


@given(
    tiles=st.integers(1, 3),
    groups=st.integers(1, 5),
    bits=st.sampled_from([4, 8]),
    seed=st.integers(0, 2**32 - 1),
)
def test_any_bytes_come_back(tiles: int, groups: int, bits: int, seed: int) -> None:
    rows, columns = 256 * tiles, 64 * groups
    count = rows * columns * bits // 8 + 4 * rows * groups
    section = np.random.default_rng(seed).integers(0, 256, count, np.uint8)

    planes = untile(section, rows, columns, bits)

    assert np.array_equal(flat(tile(planes, columns, bits)), section)


@pytest.mark.parametrize("bits", [4, 8])
def test_what_comes_back_multiplies_as_before(bits: int) -> None:
    values = mx.random.normal((512, 192), key=mx.random.key(0)).astype(mx.bfloat16)
    packed = mx.quantize(values, group_size=64, bits=bits)
    weight = np.array(packed[0])
    scales, biases = (np.array(part.view(mx.uint16)) for part in packed[1:])

    back = untile(flat(tile((weight, scales, biases), 192, bits)), 512, 192, bits)

    x = mx.random.normal((3, 192), key=mx.random.key(1)).astype(mx.bfloat16)
    again = (mx.array(part) for part in back)
    w, s, b = next(again), *(part.view(mx.bfloat16) for part in again)
    expected = mx.quantized_matmul(x, *packed, group_size=64, bits=bits)
    assert mx.array_equal(
        mx.quantized_matmul(x, w, s, b, group_size=64, bits=bits), expected
    )
