# SPDX-License-Identifier: Apache-2.0
"""Acceptance and the target's distribution, as kernels and as plain MLX."""

from __future__ import annotations

from collections.abc import Callable

import mlx.core as mx
import numpy as np
import pytest
from kernels.kit import FLOATS, emulation, normal, wide
from msl.stand_in import StandIn

from splashpy.kernels import gate
from splashpy.kernels.accept import Draft, End, accept_greedy, accept_sampled
from splashpy.kernels.target_topk import Cut, Distributions, target_topk
from splashpy.verification.rejection import reject

FINE = mx.array([False] * 4)
TOKENS = mx.array([5, 6, 7])


def both_ways(call: Callable[[], mx.array]) -> list[int]:
    """A decision of the kernel, which must be the reference's as far as it counts."""
    decided = call().tolist()
    with gate.ruled(None):
        assert call().tolist()[: 4 + decided[0]] == decided[: 4 + decided[0]]
    return decided


@pytest.mark.parametrize(
    ("choices", "end", "wanted"),
    [
        ([5, 6, 7, 8], End(9), [3, 0, 4, 5, 6, 7, 8]),
        ([5, 6, 9, 8], End(9), [2, 0, 3, 5, 6, 9, 9]),
        ([4, 6, 7, 8], End(9), [0, 0, 1, 4, 4, 4, 4]),
        ([5, 6, 7, 8], End(2), [3, 0, 2, 5, 6, 7, 8]),
        ([5, 6, 7, 8], End(9, (7, 6)), [3, 0, 2, 5, 6, 7, 8]),
        ([5, 6, 9, 8], End(9, (9,)), [2, 0, 3, 5, 6, 9, 9]),
        ([5, 6, 7, 8], End(1, (8,)), [3, 0, 1, 5, 6, 7, 8]),
    ],
)
def test_a_greedy_draft_stays_while_the_target_agrees(
    device: StandIn, choices: list[int], end: End, wanted: list[int]
) -> None:
    decided = both_ways(lambda: accept_greedy(TOKENS, mx.array(choices), FINE, end))
    count = decided[2]
    assert decided[:3] == wanted[:3]
    assert decided[3 : 3 + count] == wanted[3 : 3 + count]


def test_only_rows_that_decided_can_be_broken(device: StandIn) -> None:
    choices = mx.array([5, 9, 7, 8])
    for row, broken in ((0, 1), (1, 1), (2, 0), (3, 0)):
        rows = mx.array([row == i for i in range(4)])
        decided = accept_greedy(TOKENS, choices, rows, End(9)).tolist()
        assert decided[:2] == [1, broken]


def sampled_case(seed: int) -> tuple[Draft, Distributions]:
    """Three slots of four candidates, four rows of five tokens."""
    rng = np.random.default_rng(seed)
    candidates = np.array([rng.choice(9, 4, replace=False) for _ in range(3)])
    ids = np.sort(np.array([rng.choice(9, 5, replace=False) for _ in range(4)]))
    q, p = rng.dirichlet(np.ones(4), 3), rng.dirichlet(np.ones(5), 4)
    chosen = [rng.choice(4, p=row) for row in q]
    token_ids = candidates[np.arange(3), chosen]
    draft = Draft(
        mx.array(token_ids.astype(np.int32)),
        mx.array(candidates.astype(np.int32)),
        mx.array(q.astype(np.float32)),
    )
    target = Distributions(
        mx.array(ids.astype(np.int32)), mx.array(p.astype(np.float32)), FINE
    )
    return draft, target


def expected_run(
    draft: Draft, target: Distributions, uniforms: list[float], last: float
) -> tuple[int, int]:
    """Tokens kept, and the target's own, in float64."""
    candidates, q = np.array(draft.candidates), wide(draft.probs)
    ids, p = np.array(target.ids), wide(target.probs)
    kept = 0
    for token in draft.token_ids.tolist():
        of_q = q[kept][candidates[kept] == token].sum()
        if not uniforms[kept] * of_q < p[kept][ids[kept] == token].sum():
            break
        kept += 1
    weights = p[kept].copy()
    if kept < len(candidates):
        for token, part in zip(candidates[kept], q[kept], strict=True):
            weights[ids[kept] == token] -= part
    weights = np.maximum(weights, 0)
    sums = np.cumsum(weights)
    return kept, int(ids[kept][np.argmax((sums > last * sums[-1]) & (weights > 0))])


@pytest.mark.parametrize("seed", range(12))
def test_a_drawn_draft_is_kept_as_the_rule_says(device: StandIn, seed: int) -> None:
    draft, target = sampled_case(seed)
    numbers = np.random.default_rng(100 + seed).random(4).astype(np.float32).tolist()
    kept, own = expected_run(draft, target, numbers[:3], numbers[3])
    decided = both_ways(
        lambda: accept_sampled(
            draft, target, mx.array(numbers[:3]), mx.array(numbers[3]), End(9)
        )
    )
    assert decided[:3] == [kept, 0, kept + 1]
    assert decided[3 : 3 + kept + 1] == [*draft.token_ids.tolist()[:kept], own]


def test_a_draft_the_target_rules_out_is_replaced(device: StandIn) -> None:
    draft, target = sampled_case(0)
    ruled_out = Distributions(target.ids + 20, target.probs, target.broken)
    decided = both_ways(
        lambda: accept_sampled(
            draft, ruled_out, mx.zeros(3), mx.array(0.0), End(9, (int(1e6),))
        )
    )
    assert decided[:4] == [0, 0, 1, ruled_out.ids[0, 0].item()]


def test_where_p_equals_q_a_rejection_still_draws(device: StandIn) -> None:
    q = mx.array([[0.25, 0.75]])
    draft = Draft(mx.array([1]), mx.array([[1, 2]]), q)
    rows = Distributions(mx.array([[1, 2]] * 2), mx.concatenate([q, q]), FINE[:2])
    # A uniform of 1 never occurs; it stands for what rounding does.
    decided = both_ways(
        lambda: accept_sampled(draft, rows, mx.array([1.0]), mx.array(0.5), End(9))
    )
    assert decided[:4] == [0, 0, 1, 2]


def test_a_drafter_that_computes_no_numbers_changes_nothing(device: StandIn) -> None:
    candidates = mx.array([[1, 2]])
    draft = Draft(mx.array([1]), candidates, mx.full((1, 2), mx.nan))
    p = mx.array([[0.3, 0.3, 0.4]] * 2)
    rows = Distributions(mx.array([[1, 2, 3]] * 2), p, FINE[:2])
    for last, own in ((0.1, 1), (0.5, 2), (0.9, 3)):
        decided = both_ways(
            lambda u=last: accept_sampled(
                draft, rows, mx.array([0.2]), mx.array(u), End(9)
            )
        )
        assert decided[:4] == [0, 0, 1, own]
        dense = mx.pad(p, [(0, 0), (1, 0)])
        numbers = mx.array([0.2]), mx.array(last)
        ours = reject(dense, draft.token_ids, candidates, draft.probs, *numbers)
        assert (ours[0][0].item(), ours[1].item()) == (own, 1)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize(
    "cut", [Cut(0.7, 32), Cut(1.3, 20, 0.8), Cut(1.0, 32, 0.9, 0.05), Cut(0.2, 1)]
)
def test_the_target_distribution(device: StandIn, cut: Cut, dtype: mx.Dtype) -> None:
    device.emulation = emulation(cut.top_k)
    logits = normal(3, 700, dtype=dtype, seed=1, scale=2)
    got = target_topk(logits, cut)
    with gate.ruled(None):
        reference = target_topk(logits, cut)
    assert got.ids.tolist() == reference.ids.tolist()
    assert got.broken.tolist() == [False] * 3
    for row in range(3):
        values = wide(logits)[row]
        order = np.lexsort((np.arange(700), -values))[: cut.top_k]
        scaled = (values[order] - values[order[0]]) / cut.temperature
        chances = np.exp(scaled) / np.exp(scaled).sum()
        stays = (np.cumsum(chances) - chances < cut.top_p) & (
            scaled >= np.log(max(cut.min_p, 1e-300))
        )
        wanted = np.zeros(700)
        wanted[order[stays]] = chances[stays] / chances[stays].sum()
        count = int(stays.sum())
        ids = np.array(got.ids)[row][:count]
        assert list(ids) == sorted(order[stays])
        for probs in (got.probs, reference.probs):
            np.testing.assert_allclose(wide(probs)[row][:count], wanted[ids], rtol=1e-5)
            assert not wide(probs)[row][count:].any()


def test_a_row_that_is_not_a_number_says_so(device: StandIn) -> None:
    logits = normal(3, 300)
    logits[1, 200] = mx.nan
    got = target_topk(logits, Cut(1.0, 8))
    assert got.broken.tolist() == [False, True, False]
