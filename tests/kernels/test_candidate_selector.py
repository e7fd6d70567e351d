# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import itertools
from functools import partial

import mlx.core as mx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from splashpy.kernels.candidate_selector import (
    Lattice,
    build_lattice,
    walk_greedy,
    walk_look_ahead,
    walk_sampled,
)
from splashpy.kernels.noise import gumbel_rows
from splashpy.kernels.top_tokens import top_tokens


def lattice(slots: int, count: int, seed: int) -> Lattice:
    first, following = mx.random.split(mx.random.key(seed), 2)
    return Lattice(
        mx.random.normal((count,), key=first),
        mx.random.normal((slots - 1, count, count), key=following),
    )


@given(
    vocab=st.sampled_from([16, 130, 4096, 5000, 9001]),
    levels=st.sampled_from([1, 3, 50, 10**6]),
    seed=st.integers(0, 100),
)
def test_candidates_are_the_largest_and_ties_go_to_the_lower_id(
    vocab: int, levels: int, seed: int
) -> None:
    logits = mx.random.randint(-levels, levels, (3, vocab), key=mx.random.key(seed))
    logits = logits.astype(mx.float32) / 8
    ids, values = top_tokens(logits, 16)
    expected = np.argsort(-np.array(logits), axis=-1, kind="stable")[:, :16]
    assert ids.tolist() == expected.tolist()
    assert mx.array_equal(values, mx.take_along_axis(logits, ids, axis=-1))


@pytest.mark.parametrize("vocab", [40, 9001])
def test_forbidden_and_signed_zero_logits_keep_their_order(vocab: int) -> None:
    logits = mx.full((1, vocab), -mx.inf)
    logits[0, 30], logits[0, 7], logits[0, 20] = 0.0, -0.0, -1.0
    ids, _ = top_tokens(logits, 5)
    assert ids.tolist() == [[7, 30, 20, 0, 1]]


def test_more_candidates_than_tokens_is_a_mistake() -> None:
    with pytest.raises(ValueError, match="the 5 largest of 4 tokens"):
        top_tokens(mx.zeros((2, 4)), 5)


@given(slots=st.integers(1, 4), seed=st.integers(0, 50))
def test_scores_agree_with_the_equation(slots: int, seed: int) -> None:
    keys = mx.random.split(mx.random.key(seed), 5)
    unary = mx.random.normal((slots, 3), key=keys[0])
    candidates = mx.random.randint(0, 20, (slots, 3), key=keys[1])
    gate = mx.random.normal((slots, 6), key=keys[2])
    before = mx.random.normal((20, 6), key=keys[3])
    after = mx.random.normal((20, 6), key=keys[4])
    scores = build_lattice(unary, candidates, mx.array(4), gate, (before, after))
    for slot in range(slots):
        predecessors = [4] if slot == 0 else candidates[slot - 1].tolist()
        for a, token in enumerate(predecessors):
            edges = (before[token] * gate[slot] * after[candidates[slot]]).sum(-1)
            row = scores.row(slot, mx.array(a) if slot else None)
            assert mx.allclose(row, unary[slot] + edges, atol=1e-5)


def test_shapes_that_do_not_fit_are_named() -> None:
    books = (mx.zeros((9, 6)), mx.zeros((9, 6)))
    ids = mx.zeros((2, 3), dtype=mx.int32)
    with pytest.raises(ValueError, match=r"a gate \(2, 6\), got"):
        build_lattice(mx.zeros((2, 3)), ids, mx.array(0), mx.zeros((1, 6)), books)


@given(slots=st.integers(1, 5), seed=st.integers(0, 50))
def test_the_greedy_walk_takes_the_best_row_by_row(slots: int, seed: int) -> None:
    scores = lattice(slots, 4, seed)
    path = walk_greedy(scores).tolist()
    assert path[0] == scores.first.tolist().index(scores.first.max().item())
    for slot in range(1, slots):
        row = scores.following[slot - 1, path[slot - 1]].tolist()
        assert path[slot] == row.index(max(row))


def test_equal_scores_go_to_the_first_candidate() -> None:
    flat = Lattice(mx.zeros(3), mx.zeros((2, 3, 3)))
    assert walk_greedy(flat).tolist() == [0, 0, 0]


@given(slots=st.integers(1, 4), seed=st.integers(0, 50))
def test_no_path_is_worth_more_than_the_look_ahead_walk(slots: int, seed: int) -> None:
    scores = lattice(slots, 3, seed)
    worth = {
        path: expected_accepted(scores, path)
        for path in itertools.product(range(3), repeat=slots)
    }
    chosen = tuple(walk_look_ahead(scores).tolist())
    assert worth[chosen] == pytest.approx(max(worth.values()), abs=1e-6)


def expected_accepted(scores: Lattice, path: tuple[int, ...]) -> float:
    total, alive, previous = 0.0, 1.0, None
    for slot, index in enumerate(path):
        q = mx.softmax(scores.row(slot, previous))
        alive *= q[index].item()
        total += alive
        previous = mx.array(index)
    return total


def test_draws_along_the_walk_follow_the_distributions_it_returns() -> None:
    scores, temperature, draws = lattice(2, 3, seed=7), 0.7, 20_000
    noise = gumbel_rows(1, 0, 1, draws * 6).reshape(draws, 2, 3)
    paths, probs = mx.vmap(partial(walk_sampled, scores, temperature))(noise)

    first = mx.softmax(scores.first / temperature)
    second = mx.softmax(scores.following[0] / temperature, axis=-1)
    assert mx.allclose(probs[:, 0], first, atol=1e-6)
    assert mx.allclose(probs[:, 1], second[paths[:, 0]], atol=1e-6)

    joint = np.array(first[:, None] * second).ravel()
    counts = np.bincount(np.array(paths[:, 0] * 3 + paths[:, 1]), minlength=9)
    chi_square = ((counts - draws * joint) ** 2 / (draws * joint)).sum()
    # 8 degrees of freedom: 31.8 is exceeded once in ten thousand.
    assert chi_square < 31.8


def test_a_tiny_temperature_draws_the_best_and_says_so() -> None:
    scores = lattice(3, 4, seed=2)
    path, probs = walk_sampled(scores, 1e-6, mx.zeros((3, 4)))
    assert path.tolist() == walk_greedy(scores).tolist()
    assert mx.array_equal(mx.take_along_axis(probs, path[:, None], 1), mx.ones((3, 1)))


def test_equally_good_candidates_are_drawn_equally_often_at_any_temperature() -> None:
    even = Lattice(mx.array([1e6, 1e6]), mx.zeros((0, 2, 2)))
    noise = gumbel_rows(5, 0, 1, 8000).reshape(4000, 1, 2)
    paths, probs = mx.vmap(partial(walk_sampled, even, 1e-3))(noise)
    assert mx.allclose(probs, mx.array(0.5))
    # Four standard errors of a share of one half.
    assert abs(paths.astype(mx.float32).mean().item() - 0.5) < 4 * 0.5 / 4000**0.5
