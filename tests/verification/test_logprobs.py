# SPDX-License-Identifier: Apache-2.0
"""Log-probabilities against numpy's arithmetic in double precision."""

from __future__ import annotations

import mlx.core as mx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from splashpy.verification.logprobs import LEAST, rank, read_ranking


def log_softmax(logits: np.ndarray) -> np.ndarray:
    wide = logits.astype(np.float64)
    wide = wide - wide.max(axis=-1, keepdims=True)
    return wide - np.log(np.exp(wide).sum(axis=-1, keepdims=True))


@given(rows=st.integers(1, 5), count=st.integers(0, 20), seed=st.integers(0, 99))
def test_numbers_are_those_of_the_whole_distribution(
    rows: int, count: int, seed: int
) -> None:
    random = np.random.default_rng(seed)
    logits = random.normal(0, 5, (rows, 300)).astype(np.float32)
    chosen = random.integers(0, 300, rows)
    expected = log_softmax(logits)

    ranking = rank(mx.array(logits), mx.array(chosen, dtype=mx.int32), count)
    found = read_ranking(ranking, chosen.tolist())

    assert len(found) == rows
    for row, token in enumerate(found):
        assert token.token_id == chosen[row]
        assert token.logprob == pytest.approx(expected[row, chosen[row]], abs=1e-5)
        order = np.argsort(-logits[row], kind="stable")[:count]
        assert [id_ for id_, _ in token.top] == order.tolist()
        values = [value for _, value in token.top]
        assert values == pytest.approx(expected[row, order].tolist(), abs=1e-5)
        assert values == sorted(values, reverse=True)


def test_a_token_without_a_chance_is_written_as_a_number() -> None:
    logits = mx.array([[0.0, -mx.inf]])

    (found,) = read_ranking(rank(logits, mx.array([1]), 2), [1])

    assert found.logprob == LEAST
    assert found.top == ((0, 0.0), (1, LEAST))


def test_only_committed_tokens_are_read_and_void_ones_do_no_harm() -> None:
    logits = mx.zeros((3, 4))

    found = read_ranking(rank(logits, mx.array([2, -7, 99]), 1), [2])

    assert [token.token_id for token in found] == [2]
    assert read_ranking((), [1, 2]) == ()
