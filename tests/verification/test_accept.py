# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import Sequence

import mlx.core as mx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from splashpy.verification.accept import AcceptedRun, accept, agreement, choose

token_ids = st.integers(0, 3)


def test_keeps_the_agreeing_prefix_and_adds_the_targets_token() -> None:
    assert accept([5, 6, 7], [5, 6, 9, 1]) == AcceptedRun((5, 6, 9))


def test_a_fully_accepted_draft_brings_one_token_more() -> None:
    assert accept([5, 6], [5, 6, 7]) == AcceptedRun((5, 6, 7))
    assert accept([5, 6], [5, 6, 7]).drafted == 2


def test_an_empty_draft_is_a_plain_step() -> None:
    assert accept([], [4]) == AcceptedRun((4,))


def test_a_missing_choice_is_a_bug_that_names_both_counts() -> None:
    with pytest.raises(ValueError, match="2 drafted tokens need 3 target choices"):
        accept([1, 2], [1, 2])


@given(st.lists(st.tuples(token_ids, token_ids), max_size=7), token_ids)
def test_the_graph_counts_what_the_rule_keeps(
    pairs: list[tuple[int, int]], bonus: int
) -> None:
    proposal = [pair[0] for pair in pairs]
    choices = [pair[1] for pair in pairs] + [bonus]
    kept = agreement(
        mx.array(proposal, dtype=mx.int32), mx.array(choices, dtype=mx.int32)
    )
    assert kept.item() == accept(proposal, choices).drafted


@given(seed=token_ids, draft=st.lists(st.lists(token_ids, max_size=7), min_size=8))
def test_output_is_what_the_target_alone_would_write(
    seed: int, draft: list[list[int]]
) -> None:
    def target(context: Sequence[int]) -> int:
        return sum(context[-3:]) % 4

    plain = [seed]
    while len(plain) < 16:
        plain.append(target(plain))

    speculative = [seed]
    for proposal in draft:
        choices = [
            target([*speculative, *proposal[:i]]) for i in range(len(proposal) + 1)
        ]
        speculative += accept(proposal, choices).tokens

    assert speculative[:16][: len(plain)] == plain[: len(speculative)]


def test_equal_scores_go_to_the_lower_id() -> None:
    assert choose(mx.array([[1.0, 3.0, 3.0, 0.0]]), None).tolist() == [1]


def test_noise_decides_among_close_scores() -> None:
    scores = mx.zeros((1, 4))
    noise = mx.array([[0.0, 0.1, 2.0, 0.3]])
    assert choose(scores, noise).tolist() == [2]
