# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import mlx.core as mx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from splashpy.kernels.noise import Purpose, gumbel_rows, mix64, uniforms

seeds = st.integers(0, 2**64 - 1)
positions = st.integers(0, 2**20)


def as_numpy(array: mx.array) -> np.ndarray:
    return np.array(array)


@given(seeds, positions, st.integers(1, 5))
def test_a_row_depends_on_its_position_not_on_the_rows_asked_with_it(
    seed: int, position: int, before: int
) -> None:
    alone = gumbel_rows(seed, position + before, 1, 16)[0]
    together = gumbel_rows(seed, position, before + 1, 16)[before]
    assert mx.array_equal(alone, together)


@given(seeds, positions)
def test_seed_position_purpose_and_cycle_each_change_the_noise(
    seed: int, position: int
) -> None:
    rows = [
        gumbel_rows(seed, position, 1, 8),
        gumbel_rows(seed + 1, position, 1, 8),
        gumbel_rows(seed, position + 1, 1, 8),
        gumbel_rows(seed, position, 1, 8, purpose=Purpose.DRAFT),
        gumbel_rows(seed, position, 1, 8, cycle=1),
    ]
    for i, row in enumerate(rows):
        for other in rows[i + 1 :]:
            assert not mx.array_equal(row, other)


def test_the_global_generator_is_left_alone() -> None:
    mx.random.seed(5)
    expected = mx.random.uniform(shape=(4,))
    mx.random.seed(5)
    mx.eval(gumbel_rows(1, 2, 3, 4), uniforms(1, 2, 3, 0, Purpose.ACCEPT))
    assert mx.array_equal(mx.random.uniform(shape=(4,)), expected)


@pytest.mark.parametrize("rows", [0, 1, 7])
def test_shapes_follow_the_number_of_rows(rows: int) -> None:
    assert gumbel_rows(0, 0, rows, 11).shape == (rows, 11)
    assert uniforms(0, 0, rows, 0, Purpose.ACCEPT).shape == (rows,)


def test_uniforms_of_many_positions_and_purposes_are_uniform_and_uncorrelated() -> None:
    count = 5_000
    streams = [
        as_numpy(uniforms(9, 0, count, 0, purpose))
        for purpose in (Purpose.ACCEPT, Purpose.RESIDUAL)
    ]
    for values in streams:
        assert values.min() >= 0
        assert values.max() < 1
        # Kolmogorov-Smirnov distance; 1.95 / sqrt(n) is exceeded once in a thousand.
        ordered = np.sort(values)
        distance = np.abs(ordered - (np.arange(count) + 0.5) / count).max()
        assert distance < 1.95 / count**0.5
    # Standard error of a correlation is 1 / sqrt(n); four of them.
    assert abs(np.corrcoef(streams[0], streams[1])[0, 1]) < 4 / count**0.5
    assert abs(np.corrcoef(streams[0][1:], streams[0][:-1])[0, 1]) < 4 / count**0.5


def test_the_largest_score_plus_noise_is_a_draw_from_the_distribution() -> None:
    p = np.array([0.5, 0.25, 0.125, 0.125])
    draws = 10_000
    chosen = mx.argmax(gumbel_rows(3, 0, draws, 4) + mx.log(mx.array(p)), axis=-1)
    counts = np.bincount(as_numpy(chosen), minlength=4)
    chi_square = ((counts - draws * p) ** 2 / (draws * p)).sum()
    # 3 degrees of freedom: 21.1 is exceeded once in ten thousand.
    assert chi_square < 21.1


def test_the_mixing_function_is_splitmix64() -> None:
    # First output of splitmix64 with state 0, as published with the algorithm.
    assert mix64(0) == 0xE220A8397B1DCDAF


@given(seeds, positions)
def test_order_of_the_mixed_words_matters(seed: int, position: int) -> None:
    if seed != position:
        assert mix64(seed, position) != mix64(position, seed)
