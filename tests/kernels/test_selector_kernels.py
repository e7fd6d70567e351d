# SPDX-License-Identifier: Apache-2.0
"""The largest tokens, and the path through them, as kernels."""

from __future__ import annotations

from itertools import product

import mlx.core as mx
import numpy as np
import pytest
from kernels.kit import FLOATS, emulation, normal, wide
from msl.stand_in import StandIn

from splashpy.kernels import gate, metal
from splashpy.kernels.candidate_selector import Selector, best_path, drawn_path
from splashpy.kernels.top_tokens import top_tokens


def ordered(logits: mx.array, count: int) -> np.ndarray:
    """Ids by value, ties by id, what is not a number first."""
    rows = wide(logits)
    rows = np.where(np.isnan(rows), np.inf, rows)
    missing = np.isnan(wide(logits))
    order = [
        np.lexsort((np.arange(rows.shape[1]), -row, ~lost))
        for row, lost in zip(rows, missing, strict=True)
    ]
    return np.array(order)[:, :count]


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize(("rows", "vocab"), [(1, 16), (7, 1000), (17, 257)])
def test_the_largest_tokens_of_every_row(
    device: StandIn, rows: int, vocab: int, dtype: mx.Dtype
) -> None:
    device.emulation = emulation(vocab)
    logits = normal(rows, vocab, dtype=dtype, scale=3)  # bfloat16 has many ties
    ids, values = top_tokens(logits, 16)
    assert ids.tolist() == ordered(logits, 16).tolist()
    wanted = mx.take_along_axis(logits.astype(mx.float32), ids, axis=-1)
    assert mx.array_equal(values, wanted)


def test_ties_infinities_and_what_is_not_a_number(device: StandIn) -> None:
    logits = mx.zeros((4, 700))
    logits[0, 300:] = -0.0
    logits[1] = -mx.inf
    logits[2, 5::50] = mx.nan
    logits[2, 9] = -mx.array(mx.nan)
    logits[3, 650] = mx.inf
    ids, _ = top_tokens(logits, 16)
    assert ids[0].tolist() == ids[1].tolist() == list(range(16))
    assert ids[2].tolist() == ordered(logits[2:3], 16)[0].tolist()
    assert ids[3].tolist() == [650, *range(15)]
    with gate.ruled(None):
        assert mx.array_equal(top_tokens(logits, 16)[0], ids)


def selector(count: int = 16, **choices: object) -> tuple[Selector, mx.array, mx.array]:
    """A selector over 500 tokens, logits of five slots and their gates."""
    vocab, rank = 500, 64
    made = Selector(
        normal(vocab, rank, dtype=mx.bfloat16, seed=1),
        normal(vocab, rank, dtype=mx.bfloat16, seed=2),
        count,
        **choices,
    )
    rows = vocab if made.tokens is None else made.tokens.shape[0]
    logits = normal(5, rows, seed=3, scale=2)
    return made, logits, normal(5, rank, dtype=mx.bfloat16, seed=4)


def table(made: Selector, logits: mx.array, gates: mx.array, anchor: int) -> tuple:
    """Candidates and, in float64, the score of every transition."""
    ids = ordered(logits, made.count)
    unary = np.take_along_axis(wide(logits), ids, 1) * made.multiplier
    if made.softcap:
        unary = made.softcap * np.tanh(unary / made.softcap)
    tokens = ids if made.tokens is None else np.array(made.tokens)[ids]
    before, after = wide(made.predecessor), wide(made.successor)
    gate_rows = wide(gates)

    def score(slot: int, previous: int) -> np.ndarray:
        products = before[previous] * gate_rows[slot] * after[tokens[slot]]
        return unary[slot] + products.sum(-1)

    return tokens, score


CHOICES = {
    "plain": {},
    "capped": {"multiplier": 0.5, "softcap": 2.0},
    "of frequent tokens": {"tokens": mx.arange(3, 403, 2, dtype=mx.int32)},
}


@pytest.mark.parametrize("choice", CHOICES)
def test_the_greedy_walk(device: StandIn, choice: str) -> None:
    made, logits, gates = selector(**CHOICES[choice])
    tokens, score = table(made, logits, gates, 77)
    wanted, previous = [], 77
    for slot in range(5):
        previous = tokens[slot][np.argmax(score(slot, previous))]
        wanted.append(previous)
    for seed in range(3):
        device.emulation = emulation(seed)
        path = best_path(made, logits, gates, mx.array(77))
        assert path.tolist() == wanted


def test_the_look_ahead_walk(device: StandIn) -> None:
    made, logits, gates = selector(count=4)
    tokens, score = table(made, logits, gates, 3)

    def worth(path: tuple[int, ...]) -> float:
        previous, chance, expected = 3, 1.0, 0.0
        for slot, choice in enumerate(path):
            scores = score(slot, previous)
            weights = np.exp(scores - scores.max())
            chance *= weights[choice] / weights.sum()
            expected += chance
            previous = tokens[slot][choice]
        return expected

    best = max(product(range(4), repeat=5), key=worth)
    wanted = [tokens[slot][choice] for slot, choice in enumerate(best)]
    for seed in range(3):
        device.emulation = emulation(seed)
        path = best_path(made, logits, gates, mx.array(3), look_ahead=True)
        assert path.tolist() == wanted


@pytest.mark.parametrize("slots", [8, 9])
def test_a_table_that_threadgroup_memory_does_not_hold_is_left_to_mlx(
    device: StandIn, slots: int
) -> None:
    made = Selector(normal(40, 2, seed=1), normal(40, 2, seed=2), 32)
    rows = normal(slots, 40, seed=3), normal(slots, 2, seed=4), mx.array(3)
    path = best_path(made, *rows, look_ahead=True)
    assert ("select_look_ahead" in device.names) == (slots == 8)
    with gate.ruled(None):
        assert mx.array_equal(best_path(made, *rows, look_ahead=True), path)


@pytest.mark.parametrize("by_token", [False, True])
def test_the_drawn_walk(device: StandIn, by_token: bool) -> None:
    made, logits, gates = selector()
    tokens, score = table(made, logits, gates, 9)
    width = 500 if by_token else 16
    noise = mx.random.gumbel((5, width), key=mx.random.key(8))
    wanted, chances, previous = [], [], 9
    for slot in range(5):
        scores = score(slot, previous) / 0.7
        weights = np.exp(scores - scores.max())
        chances.append(weights / weights.sum())
        own = wide(noise)[slot]
        chosen = np.argmax(scores + (own[tokens[slot]] if by_token else own))
        previous = tokens[slot][chosen]
        wanted.append(previous)
    drawn = (made, logits, gates, mx.array(9), mx.array(0.7), noise)
    path, candidates, probs = drawn_path(*drawn)
    assert path.tolist() == wanted
    assert candidates.tolist() == tokens.tolist()
    # float32 scores of size 30 at temperature 0.7
    np.testing.assert_allclose(wide(probs), np.array(chances), rtol=2e-4, atol=1e-9)
    with gate.ruled(None):
        reference = drawn_path(*drawn)
    assert mx.array_equal(reference[0], path)
    assert mx.array_equal(reference[1], candidates)


@pytest.mark.parametrize("limit", [384, 64])
def test_fewer_threads_take_the_same_path(
    device: StandIn, monkeypatch: pytest.MonkeyPatch, limit: int
) -> None:
    made, logits, gates = selector()
    wanted = best_path(made, logits, gates, mx.array(77))
    for name in ("select_walk", "top_shards"):
        monkeypatch.setitem(metal._limits, name, limit)
    assert mx.array_equal(best_path(made, logits, gates, mx.array(77)), wanted)


@pytest.mark.parametrize("way", ["greedy", "look-ahead", "drawn"])
def test_logits_that_are_no_numbers_still_give_tokens(
    device: StandIn, way: str
) -> None:
    made, logits, gates = selector(count=6)
    logits[2:] = mx.nan
    rows = made, logits, gates, mx.array(10_000)
    if way == "drawn":
        path = drawn_path(*rows, mx.array(0.7), mx.zeros((5, 6)))[0]
    else:
        path = best_path(*rows, look_ahead=way == "look-ahead")
    assert all(0 <= token < 500 for token in path.tolist())
