# SPDX-License-Identifier: Apache-2.0
"""Rejection sampling: the rule, the code that applies it, and both together.

``emitted`` computes in float64 what the rule makes of any proposal. It must equal the
target; and the code must decide as the rule does, at every edge.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import partial

import mlx.core as mx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from splashpy.kernels.candidate_selector import Lattice, walk_sampled
from splashpy.kernels.noise import gumbel_rows
from splashpy.verification.rejection import draw, reject
from splashpy.verification.sampling import SamplingParams, score

EDGE = 1e-5  # clear of float32 rounding, far below any probability used here

Accept = Callable[[np.ndarray, np.ndarray], np.ndarray]
Residual = Callable[[np.ndarray, np.ndarray], np.ndarray]


@st.composite
def distributions(draw_: st.DrawFn, size: int | None = None) -> np.ndarray:
    """A distribution over up to 16 tokens, some of them impossible."""
    count = size or draw_(st.integers(2, 16))
    weights = draw_(st.lists(st.integers(0, 20), min_size=count, max_size=count))
    if not sum(weights):
        weights[0] = 1
    return np.array(weights) / sum(weights)


def min_ratio(p: np.ndarray, q: np.ndarray) -> np.ndarray:
    """Chance that each token stays once drawn."""
    return np.divide(np.minimum(p, q), q, out=np.zeros_like(p), where=q > 0)


def positive_part(p: np.ndarray, q: np.ndarray) -> np.ndarray:
    rest = np.maximum(p - q, 0)
    return rest / rest.sum() if rest.sum() > 0 else p


def emitted(
    p: np.ndarray,
    q: np.ndarray,
    accept: Accept = min_ratio,
    residual: Residual = positive_part,
) -> np.ndarray:
    """Distribution of the first token when a draft is drawn from q."""
    stays = q * accept(p, q)
    return stays + (1 - stays.sum()) * residual(p, q)


@given(st.data())
def test_the_rule_gives_the_targets_distribution(data: st.DataObject) -> None:
    p = data.draw(distributions())
    q = data.draw(distributions(len(p)))
    np.testing.assert_allclose(emitted(p, q), p, rtol=0, atol=1e-9)


@pytest.mark.parametrize(
    ("accept", "residual"),
    [
        (min_ratio, lambda p, q: p),  # the rejected token is not taken out
        (lambda p, q: np.where(q > 0, p, 0), positive_part),  # q is forgotten
        (lambda p, q: min_ratio(p, q[::-1]), positive_part),  # another slot's q
    ],
)
def test_a_broken_rule_is_noticed(accept: Accept, residual: Residual) -> None:
    p, q = np.array([0.5, 0.25, 0.125, 0.125]), np.array([0.25, 0.0, 0.65, 0.1])
    assert abs(emitted(p, q, accept, residual) - p).max() > 1e-2


@given(st.data())
def test_a_token_stays_exactly_below_its_threshold(data: st.DataObject) -> None:
    p = data.draw(distributions())
    q = data.draw(distributions(len(p)))
    drafted = [token for token in range(len(p)) if q[token] > 0]
    rows = mx.array(np.stack([p, p]), dtype=mx.float32)
    candidates = mx.arange(len(p), dtype=mx.int32)[None]
    probs = mx.array(q[None], dtype=mx.float32)

    def kept(token: int, u: float) -> bool:
        ids, uniform = mx.array([token], dtype=mx.int32), mx.array([u])
        _, count = reject(rows, ids, candidates, probs, uniform, mx.array(0.5))
        return count.item() == 2

    for token in drafted[:4]:
        threshold = min_ratio(p, q)[token]
        if threshold > EDGE:
            assert kept(token, threshold - EDGE)
        if threshold < 1:
            assert not kept(token, threshold + EDGE)


@given(st.data())
def test_the_replacement_comes_from_what_the_draft_left(data: st.DataObject) -> None:
    p = data.draw(distributions())
    q = data.draw(distributions(len(p)))
    doubtful = [t for t in range(len(p)) if q[t] > 0 and min_ratio(p, q)[t] < 1]
    if not doubtful:
        return
    edges = np.concatenate([[0], np.cumsum(positive_part(p, q))])
    for token, (low, high) in enumerate(itertools.pairwise(edges)):
        if high - low < 4 * EDGE:
            continue
        for v in (low + EDGE, high - EDGE):
            tokens, count = reject(
                mx.array(np.stack([p, p]), dtype=mx.float32),
                mx.array(doubtful[:1], dtype=mx.int32),
                mx.arange(len(p), dtype=mx.int32)[None],
                mx.array(q[None], dtype=mx.float32),
                mx.array([1 - EDGE / 10]),
                mx.array(v),
            )
            if count.item() == 1:
                assert tokens[0].item() == token


def test_a_full_block_adds_a_token_from_the_last_row() -> None:
    p = mx.array([[0.0, 1.0, 0.0], [1.0, 0.0, 0.0], [0.25, 0.0, 0.75]])
    ids = mx.array([1, 0], dtype=mx.int32)
    for v, bonus in ((0.2, 0), (0.3, 2)):
        tokens, count = reject(p, ids, None, None, mx.zeros(2), mx.array(v))
        assert (tokens.tolist(), count.item()) == ([1, 0, bonus], 3)


def test_what_follows_the_last_counting_token_repeats_it() -> None:
    p = mx.array([[0.0, 0.0, 1.0]] * 4)
    ids = mx.array([2, 0, 1], dtype=mx.int32)
    tokens, count = reject(p, ids, None, None, mx.zeros(3), mx.array(0.5))
    assert (tokens.tolist(), count.item()) == ([2, 2, 2, 2], 2)


def test_without_a_draft_the_targets_own_token_is_drawn() -> None:
    none = mx.zeros((0,), dtype=mx.int32)
    p = mx.array([[0.5, 0.25, 0.25]])
    tokens, count = reject(p, none, None, None, mx.zeros((0,)), mx.array(0.6))
    assert (tokens.tolist(), count.item()) == ([1], 1)


def test_a_forbidden_draft_never_stays_even_for_a_uniform_of_zero() -> None:
    p = mx.array([[0.5, 0.0, 0.5]] * 2)
    ids = mx.array([1], dtype=mx.int32)
    _, count = reject(p, ids, None, None, mx.zeros(1), mx.array(0.0))
    assert count.item() == 1


def test_a_proposal_equal_to_the_target_always_stays() -> None:
    p = mx.random.uniform(shape=(8,), key=mx.random.key(0))
    p = p / p.sum()
    rows, candidates = mx.stack([p, p]), mx.arange(8, dtype=mx.int32)[None]
    almost_one = mx.array([1 - 2**-24])
    for token in range(8):
        ids = mx.array([token], dtype=mx.int32)
        _, count = reject(rows, ids, candidates, p[None], almost_one, mx.array(0.9))
        assert count.item() == 2


def test_a_residual_lost_to_rounding_falls_back_to_the_target() -> None:
    # q exceeds p by one rounding everywhere: the token may be rejected, but nothing
    # is left to draw from.
    p = mx.array([[0.5, 0.5, 0.0]] * 2)
    q = mx.array([[0.5 + 2**-24, 0.5 + 2**-24]])
    tokens, count = reject(
        p,
        mx.array([0], dtype=mx.int32),
        mx.array([[0, 1]], dtype=mx.int32),
        q,
        mx.array([1 - 2**-25]),
        mx.array(0.75),
    )
    assert (tokens[0].item(), count.item()) == (1, 1)


def test_candidates_that_repeat_a_token_count_together() -> None:
    p = mx.array([[0.5, 0.5]] * 2)
    ids = mx.array([0], dtype=mx.int32)
    candidates = mx.array([[0, 0, 1]], dtype=mx.int32)
    q = mx.array([[0.4, 0.4, 0.2]])
    # 0.6 < 0.5 / 0.8 < 0.65, and the residual is token 1 alone.
    for u, run in ((0.6, 2), (0.65, 1)):
        tokens, count = reject(p, ids, candidates, q, mx.array([u]), mx.array(0.0))
        assert count.item() == run
    assert tokens[0].item() == 1


@pytest.mark.parametrize("uniform", [0.0, 0.5, 1 - 2**-24])
def test_a_draw_never_takes_an_impossible_token(uniform: float) -> None:
    weights = mx.array([0.0, 0.3, 0.0, 1e-9, 0.0])
    assert draw(weights, mx.array(uniform)).item() in (1, 3)


def test_a_running_sum_that_rises_at_an_impossible_token_does_not_choose_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # On a GPU the sum is built in parallel: neighbours may be rounded differently.
    parallel = mx.array([0.3, 0.3 + 2**-24, 1.0])
    monkeypatch.setattr(mx, "cumsum", lambda weights: parallel)
    assert draw(mx.array([0.3, 0.0, 0.7]), mx.array(0.3)).item() == 2


def test_shapes_that_do_not_fit_are_named() -> None:
    ids = mx.zeros((2,), dtype=mx.int32)
    u = mx.zeros(2)
    with pytest.raises(ValueError, match="need 3 rows of p"):
        reject(mx.zeros((2, 4)), ids, None, None, u, u[0])
    with pytest.raises(ValueError, match="come together"):
        reject(mx.zeros((3, 4)), ids, mx.zeros((2, 1)), None, u, u[0])
    with pytest.raises(ValueError, match="as many rows of candidates"):
        reject(mx.zeros((3, 4)), ids, mx.zeros((1, 1)), mx.zeros((1, 1)), u, u[0])


DRAWS = 20_000
SAMPLING = SamplingParams(temperature=0.7, top_k=10, top_p=0.9)


def drafted_text(*, spoil: Callable[[mx.array], mx.array]) -> tuple[np.ndarray, float]:
    """Two tokens per draw, through the selector's walk and rejection.

    A 16-token target whose second token depends on the first; a selector that drafts
    two slots from 6 candidates each. Returns how often each pair came, and chi-square
    against the target alone.
    """
    keys = mx.random.split(mx.random.key(3), 4)
    logits = 1.5 * mx.random.normal((17, 16), key=keys[0])
    p = mx.softmax(score(logits, SAMPLING), axis=-1)  # row 16: nothing written yet
    candidates = mx.stack([mx.arange(0, 12, 2), mx.arange(5, 11)]).astype(mx.int32)
    scores = Lattice(
        logits[16][candidates[0]] + 2 * mx.random.normal((6,), key=keys[1]),
        logits[candidates[0]][:, candidates[1]][None]
        + 2 * mx.random.normal((1, 6, 6), key=keys[2]),
    )

    def one(noise: mx.array, uniforms: mx.array) -> mx.array:
        path, probs = walk_sampled(scores, SAMPLING.temperature, noise)
        ids = mx.take_along_axis(candidates, path[:, None], axis=-1)[:, 0]
        rows = mx.concatenate([p[16:], p[ids]])
        tokens, count = reject(
            rows, ids, candidates, spoil(probs), uniforms[:2], uniforms[2]
        )
        # A run of one token is continued by plain sampling.
        plain = draw(p[tokens[0]], uniforms[3])
        return mx.stack([tokens[0], mx.where(count > 1, tokens[1], plain)])

    noise = gumbel_rows(0, 0, 1, DRAWS * 12).reshape(DRAWS, 2, 6)
    uniforms = mx.random.uniform(shape=(DRAWS, 4), key=keys[3])
    pairs = np.array(mx.vmap(one)(noise, uniforms))
    counts = np.bincount(pairs[:, 0] * 16 + pairs[:, 1], minlength=256)
    expected = DRAWS * np.array(p[16][:, None] * p[:16], dtype=np.float64).ravel()
    usual = expected >= 5  # rarer pairs together, as the chi-square test wants it
    observed = np.append(counts[usual], counts[~usual].sum())
    wanted = np.append(expected[usual], expected[~usual].sum())
    chi_square = ((observed - wanted) ** 2 / np.maximum(wanted, 1e-9)).sum()
    freedom = len(wanted) - 1
    # Normal approximation: 4 standard deviations are exceeded once in 30,000.
    return counts, (chi_square - freedom) / (2 * freedom) ** 0.5


def test_drafted_text_is_distributed_as_the_filtered_target() -> None:
    counts, excess = drafted_text(spoil=lambda probs: probs)
    assert counts.sum() == DRAWS
    assert excess < 4


@pytest.mark.parametrize(
    "spoil",
    [
        lambda probs: probs[::-1],  # rows of the other slot
        lambda probs: mx.sort(probs, axis=-1),  # rows in another order
        partial(mx.full_like, vals=1 / 6),  # not what was drawn from
    ],
)
def test_a_wrong_proposal_distribution_is_noticed(
    spoil: Callable[[mx.array], mx.array],
) -> None:
    _, excess = drafted_text(spoil=spoil)
    assert excess > 20
