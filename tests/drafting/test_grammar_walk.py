# SPDX-License-Identifier: Apache-2.0
"""Paths through candidates that stay inside a grammar."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from splashpy.drafting.grammar_walk import Scores, walk_within
from splashpy.kernels.candidate_selector import Lattice, walk_greedy


class NotTwice:
    """A grammar of texts in which no two neighbours are equal, of even tokens."""

    def __init__(self, last: int = -1, *, even: bool = False):
        self.last, self.even = last, even

    def fork(self) -> Self:
        return type(self)(self.last, even=self.even)

    def consume(self, token_ids: Sequence[int]) -> int:
        self.last = token_ids[-1]
        return len(token_ids)

    def legal(self, token_ids: Sequence[int]) -> int:
        raise NotImplementedError

    def forced(self) -> list[int]:
        return []

    def allows(self, token_ids: Sequence[int]) -> list[bool]:
        return [
            token != self.last and (token % 2 == 0 or not self.even)
            for token in token_ids
        ]


class Anything(NotTwice):
    def allows(self, token_ids: Sequence[int]) -> list[bool]:
        return [True for _ in token_ids]


def draw(seed: int, slots: int = 4, count: int = 5) -> Scores:
    random = np.random.default_rng(seed)
    return Scores(
        np.stack([random.permutation(7)[:count] for _ in range(slots)]).astype(
            np.int32
        ),
        random.normal(size=count).astype(np.float32),
        random.normal(size=(slots - 1, count, count)).astype(np.float32),
    )


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_scores_that_are_no_numbers_end_the_path(temperature: float) -> None:
    scores, noise = draw(3), np.zeros((4, 5), np.float32)
    scores.following[1] = np.nan
    path = walk_within(scores, NotTwice(even=True), temperature, noise)
    assert 0 < len(path.token_ids) <= 2
    assert all(token % 2 == 0 for token in path.token_ids)
    assert np.isfinite(path.probs).all()


@given(st.integers(0, 10**6))
def test_without_a_rule_it_is_the_selectors_own_walk(seed: int) -> None:
    import mlx.core as mx  # noqa: PLC0415 - the other tests are numpy alone

    scores = draw(seed)
    lattice = Lattice(mx.array(scores.first), mx.array(scores.following))
    path = np.array(walk_greedy(lattice))
    expected = [int(scores.candidates[slot, at]) for slot, at in enumerate(path)]
    assert walk_within(scores, Anything()).token_ids == expected


@given(st.integers(0, 10**6), st.booleans())
def test_every_path_is_legal_and_its_probabilities_are_of_legal_candidates(
    seed: int, even: bool
) -> None:
    scores = draw(seed)
    noise = np.random.default_rng(seed + 1).gumbel(size=(4, 5)).astype(np.float32)
    rule = NotTwice(even=even)
    path = walk_within(scores, rule, 0.7, noise)
    last = -1
    for slot, token in enumerate(path.token_ids):
        allowed = NotTwice(last, even=even).allows(scores.candidates[slot].tolist())
        assert allowed[scores.candidates[slot].tolist().index(token)]
        assert (path.probs[slot][~np.array(allowed)] == 0).all()
        assert np.isclose(path.probs[slot].sum(), 1)
        last = token
    if len(path.token_ids) < 4:
        ids = scores.candidates[len(path.token_ids)].tolist()
        assert not any(NotTwice(last, even=even).allows(ids))
    assert rule.last == -1, "the rule itself has not moved"


def test_a_token_is_drawn_with_the_probability_it_is_said_to_have() -> None:
    scores, random = draw(3, slots=1), np.random.default_rng(0)
    rule = NotTwice(even=True)
    counts = np.zeros(5)
    probs = np.zeros(5)
    for _ in range(4000):
        noise = random.gumbel(size=(1, 5)).astype(np.float32)
        path = walk_within(scores, rule, 0.9, noise)
        counts[scores.candidates[0].tolist().index(path.token_ids[0])] += 1
        probs = path.probs[0]
    # Five binomial counts within four standard deviations.
    spread = np.sqrt(4000 * probs * (1 - probs))
    assert (np.abs(counts - 4000 * probs) <= 4 * spread + 1e-9).all()
