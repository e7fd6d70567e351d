# SPDX-License-Identifier: Apache-2.0
"""Drafts of any length, in any order, leave text and memory as plain decoding does."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator

import mlx.core as mx
import pytest
import tiny

from splashpy.models.target import MlxLmTarget
from splashpy.verification.sampling import SamplingParams

ARCHITECTURES = tiny.MEMORIES
BLOCK = 4
ROUNDS = 200


def shuffled(longest: int) -> Iterator[int]:
    """Every length from 0 to ``longest`` in random order, again and again."""
    generator = random.Random(3)
    lengths = range(longest + 1)
    while True:
        yield from generator.sample(lengths, len(lengths))


def test_two_hundred_rounds_equal_plain_decoding(
    target: MlxLmTarget,
    answer: Callable,
    drafter: Callable,
    difference: Callable,
    rounding: float,
) -> None:
    rounds = ROUNDS // 4 if rounding or target.facts.kv == "q8" else ROUNDS
    tokens = rounds * (BLOCK + 1) // 2 + BLOCK
    reader = drafter(target)
    plain = answer(target, reader, tokens=tokens)
    assert len(plain.cycles) == tokens  # one row at a time

    drafting = drafter(target, plain.tokens, shuffled(BLOCK - 1), block_size=BLOCK)
    drafted = answer(target, drafting, tokens=tokens)

    assert len(drafted.accepted) >= rounds
    assert set(drafted.accepted) == set(range(BLOCK))
    assert drafted.tokens == plain.tokens
    # Keys, values, convolution windows, recurrent matrices; then the drafter's rows.
    assert difference(plain.state, drafted.state) <= rounding
    pairs = zip(reader.context_rows(), drafting.context_rows(), strict=True)
    gap = max(mx.abs(ours - theirs).max().item() for ours, theirs in pairs)
    assert gap <= rounding
    assert reader.state.position == drafting.state.position


@pytest.mark.parametrize(
    "sampling",
    [SamplingParams(), SamplingParams(temperature=0.8, top_k=20, top_p=0.9)],
    ids=["greedy", "seeded"],
)
def test_whole_blocks_in_any_order_change_nothing(
    sampling: SamplingParams, target: MlxLmTarget, answer: Callable, drafter: Callable
) -> None:
    plain = answer(target, drafter(target), sampling=sampling, tokens=40).tokens
    drafting = drafter(target, plain, shuffled(7))
    drafted = answer(target, drafting, sampling=sampling, tokens=40)
    assert set(drafted.accepted) == set(range(8))
    assert drafted.tokens == plain


@pytest.mark.parametrize("length", [0, 4, 7])
def test_a_stop_token_inside_a_draft_leaves_nothing_behind(
    length: int,
    target: MlxLmTarget,
    answer: Callable,
    drafter: Callable,
    difference: Callable,
    rounding: float,
) -> None:
    plain = answer(target, drafter(target), tokens=20).tokens
    stop = frozenset([plain[6]])
    expected = plain[: plain.index(plain[6]) + 1]
    drafting = drafter(target, plain, itertools.repeat(length))
    drafted = answer(target, drafting, stop_token_ids=stop)
    straight = answer(target, drafter(target), stop_token_ids=stop)
    assert drafted.tokens == straight.tokens == expected
    assert difference(drafted.state, straight.state) <= rounding
