# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import Sequence

import mlx.core as mx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from splashpy.kernels.accept import agreement
from splashpy.verification.accept import choose

token_ids = st.integers(0, 3)


def run(proposal: Sequence[int], choices: Sequence[int]) -> list[int]:
    """What a cycle commits: the kept prefix and the target's token after it."""
    kept = agreement(
        mx.array(proposal, dtype=mx.int32), mx.array(choices, dtype=mx.int32)
    )
    return list(choices[: int(kept.item()) + 1])


@pytest.mark.parametrize(
    ("proposal", "choices", "committed"),
    [
        ([5, 6, 7], [5, 6, 9, 1], [5, 6, 9]),
        ([5, 6], [5, 6, 7], [5, 6, 7]),
        ([5, 6], [9, 6, 7], [9]),
        ([], [4], [4]),
    ],
)
def test_the_agreeing_prefix_is_kept_and_the_targets_token_added(
    proposal: list[int], choices: list[int], committed: list[int]
) -> None:
    assert run(proposal, choices) == committed


def test_agreement_after_a_disagreement_counts_nothing() -> None:
    assert run([1, 2, 3, 4], [1, 9, 3, 4, 5]) == [1, 9]


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
        speculative += run(proposal, choices)

    assert speculative[:16][: len(plain)] == plain[: len(speculative)]


def test_equal_scores_go_to_the_lower_id() -> None:
    assert choose(mx.array([[1.0, 3.0, 3.0, 0.0]]), None).tolist() == [1]


def test_noise_decides_among_close_scores() -> None:
    scores = mx.zeros((1, 4))
    noise = mx.array([[0.0, 0.1, 2.0, 0.3]])
    assert choose(scores, noise).tolist() == [2]
