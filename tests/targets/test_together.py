# SPDX-License-Identifier: Apache-2.0
"""Texts that share passes of a target come out as alone, bit for bit."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import mlx.core as mx
import pytest
import tiny

from splashpy.models.state import TargetState
from splashpy.models.target import Forward, MlxLmTarget

ARCHITECTURES = tiny.MEMORIES
LENGTHS = (5, 17, 30, 1)  # a window of 8 rows is passed by two of them
KEPT = ((1, 4, 2, 3), (4, 4, 1, 1), (2, 1, 4, 4))  # rows of three blocks of 4


def texts(target: MlxLmTarget) -> list[TargetState]:
    states = [target.new_state(64) for _ in LENGTHS]
    for seed, (state, length) in enumerate(zip(states, LENGTHS, strict=True)):
        target.forward(state, words(length, seed), rows=0)
    return states


def words(count: int, seed: int) -> mx.array:
    return (mx.arange(count) * 37 + 11 * seed) % 251


def equal(ours: Sequence[Forward], theirs: Sequence[Forward]) -> bool:
    pairs = zip(ours, theirs, strict=True)
    return all(
        mx.array_equal(a.logits, b.logits).item()
        and mx.array_equal(a.features, b.features).item()
        for a, b in pairs
    )


@pytest.fixture
def tapped(target: MlxLmTarget) -> Iterator[MlxLmTarget]:
    target.tap((0, 2))
    yield target
    target.tap(())


def test_every_architecture_reads_texts_together_as_alone(
    tapped: MlxLmTarget, difference: Callable
) -> None:
    assert tapped.shares()
    together, alone = texts(tapped), texts(tapped)
    for cycle, kept in enumerate(KEPT):
        block = mx.stack([words(4, 7 * cycle + text) for text in range(4)])
        ours = tapped.forward_together(together, block)
        theirs = [
            tapped.forward(state, ids, rows=4)
            for state, ids in zip(alone, block, strict=True)
        ]
        assert equal(ours, theirs)
        for one, other, rows in zip(together, alone, kept, strict=True):
            for state in (one, other):
                state.roll_back(state.length - 4 + rows)
            assert difference(one, other) == 0


def test_a_text_that_leaves_does_not_change_those_that_stay(
    target: MlxLmTarget, difference: Callable
) -> None:
    together, alone = texts(target), texts(target)
    for step in range(3):
        block = mx.stack([words(1, step + text) for text in range(len(together))])
        target.forward_together(together, block)
        for state, ids in zip(alone, block, strict=True):
            target.forward(state, ids, rows=1)
        together.pop(step % 2)
        alone.pop(step % 2)
    (one,), (other,) = together, alone
    assert difference(one, other) == 0
