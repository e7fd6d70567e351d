# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import math
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from splashpy.errors import UsageError
from splashpy.kernels.noise import gumbel_rows
from splashpy.server.reading import FORCE
from splashpy.verification.accept import choose
from splashpy.verification.sampling import SamplingParams, row_histories, score

LOGITS = mx.array([[2.0, 1.0, 0.5, 0.0, -1.0, 3.0]])


def kept(params: SamplingParams, logits: mx.array = LOGITS) -> list[int]:
    (row,) = score(logits, params).tolist()
    return [token for token, value in enumerate(row) if value > -math.inf]


def reference(
    logits: list[float], temperature: float, top_k: int, top_p: float, min_p: float
) -> np.ndarray:
    """The distribution by the definition, in float64 over sorted Python lists."""
    scaled = np.array(logits, dtype=np.float64) / temperature
    order = sorted(range(len(scaled)), key=lambda token: (-scaled[token], token))
    if top_k:
        order = order[:top_k]
    weights = np.exp(scaled[order] - scaled[order[0]])
    mass, chosen = 0.0, []
    for token, weight in zip(order, weights / weights.sum(), strict=True):
        if mass >= top_p:
            break
        chosen.append(token)
        mass += weight
    best = scaled[chosen[0]]
    chosen = [t for t in chosen if scaled[t] - best >= math.log(min_p or 1e-300)]
    p = np.zeros(len(scaled))
    p[chosen] = np.exp(scaled[chosen] - best)
    return p / p.sum()


def test_temperature_zero_leaves_the_logits_alone() -> None:
    assert mx.array_equal(score(LOGITS, SamplingParams()), LOGITS)


@pytest.mark.parametrize("temperature", [1e-40, 1e-6])
def test_a_temperature_next_to_zero_is_greedy(temperature: float) -> None:
    assert SamplingParams(temperature=temperature).greedy


@pytest.mark.parametrize("temperature", [1e-4, 0.01])
def test_a_low_temperature_leaves_finite_scores(temperature: float) -> None:
    (row,) = score(LOGITS * 1e3, SamplingParams(temperature=temperature)).tolist()
    assert row[5] == 0
    assert not any(math.isnan(value) for value in row)


@pytest.mark.parametrize("value", [math.nan, math.inf, 1e10, 1e300])
@pytest.mark.parametrize(
    "name", ["temperature", "presence_penalty", "frequency_penalty"]
)
def test_a_number_that_is_none_is_refused(name: str, value: float) -> None:
    with pytest.raises(UsageError, match="a finite number"):
        SamplingParams(**{name: value})


def test_top_k_keeps_the_k_largest() -> None:
    assert kept(SamplingParams(temperature=1, top_k=3)) == [0, 1, 5]


def test_ties_at_the_border_go_to_the_lower_id() -> None:
    logits = mx.array([[1.0, 2.0, 1.0, 1.0]])
    assert kept(SamplingParams(temperature=1, top_k=2), logits) == [0, 1]


def test_top_p_keeps_the_token_that_crosses_the_mass() -> None:
    logits = mx.log(mx.array([[0.5, 0.3, 0.15, 0.05]]))
    assert kept(SamplingParams(temperature=1, top_p=0.6), logits) == [0, 1]
    assert kept(SamplingParams(temperature=1, top_p=0.01), logits) == [0]


def test_min_p_drops_what_is_far_below_the_best() -> None:
    logits = mx.log(mx.array([[0.5, 0.3, 0.15, 0.05]]))
    assert kept(SamplingParams(temperature=1, min_p=0.2), logits) == [0, 1, 2]


@given(
    st.lists(st.integers(-8, 8), min_size=2, max_size=24),
    st.sampled_from([0.3, 0.7, 1.0, 1.8]),
    st.integers(0, 30),
    st.sampled_from([0.1, 0.5, 0.9, 1.0]),
    st.sampled_from([0.0, 0.05, 0.3]),
)
def test_the_distribution_equals_its_definition(
    halves: list[int], temperature: float, top_k: int, top_p: float, min_p: float
) -> None:
    logits = [value / 2 for value in halves]
    params = SamplingParams(
        temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p
    )
    ours = mx.softmax(score(mx.array([logits]), params), axis=-1)
    theirs = reference(logits, temperature, top_k, top_p, min_p)
    # A mass within float32 rounding of top_p may fall on either side.
    cumulative = np.cumsum(np.sort(reference(logits, temperature, top_k, 1.0, 0.0)))
    if np.abs((1 - cumulative) - top_p).min() > 1e-5:
        assert np.allclose(np.array(ours[0]), theirs, atol=1e-5)


@pytest.mark.parametrize(
    "extreme",
    [
        {"temperature": 1e9},
        {"temperature": 1.0, "presence_penalty": -1e9, "frequency_penalty": -1e9},
        {"temperature": 1.0, "repetition_penalty": 1e-9},
        {"temperature": 1.0, "repetition_penalty": 1e9},
        {"temperature": 1.0, "logit_bias": ((0, 1e9), (0, 1e9), (1, -1e9))},
        {"temperature": 1.0, "min_p": 1e-300, "top_p": 1e-300},
    ],
)
def test_the_largest_numbers_allowed_leave_a_distribution(
    extreme: dict[str, Any],
) -> None:
    forbidden = mx.where(mx.arange(6) == 2, -mx.inf, LOGITS * 20)
    history = mx.zeros((1, 1 << 17), dtype=mx.int32)
    chances = mx.softmax(score(forbidden, SamplingParams(**extreme), history), axis=-1)
    assert chances.sum().item() == pytest.approx(1)
    assert chances[0, 2].item() == 0


def test_logit_bias_adds_to_the_named_tokens_only() -> None:
    scored = score(LOGITS, SamplingParams(logit_bias=((3, 10.0), (0, -1.0))))
    assert scored.tolist() == [[1.0, 1.0, 0.5, 10.0, -1.0, 3.0]]


def test_tokens_that_are_all_forced_keep_their_difference() -> None:
    both = ((1, FORCE), (2, FORCE))
    near = mx.array([[9.0, 1.0, 1.001]])
    assert mx.argmax(score(near, SamplingParams(logit_bias=both))).item() == 2
    apart = mx.log(mx.array([[0.5, 0.1, 0.4]]))
    drawn = SamplingParams(temperature=1.0, logit_bias=both)
    chances = mx.softmax(score(apart, drawn))
    assert chances[0].tolist() == pytest.approx([0, 0.2, 0.8], abs=1e-4)


def test_a_bias_outside_the_vocabulary_names_the_range() -> None:
    with pytest.raises(UsageError, match="token 6; this model has ids 0 to 5"):
        score(LOGITS, SamplingParams(logit_bias=((6, 1.0),)))


def test_penalties_follow_their_equations() -> None:
    params = SamplingParams(
        repetition_penalty=2.0, presence_penalty=0.25, frequency_penalty=0.5
    )
    history = mx.array([[0, 0, 4, 6]])  # 6 = V marks "before the first token"
    (row,) = score(LOGITS, params, history).tolist()
    assert row == [
        2.0 / 2 - 0.25 - 2 * 0.5,
        1.0,
        0.5,
        0.0,
        -1.0 * 2 - 0.25 - 0.5,
        3.0,
    ]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("temperature", -0.1),
        ("top_k", -1),
        ("top_p", 0.0),
        ("top_p", 1.1),
        ("min_p", 1.0),
        ("repetition_penalty", 0.0),
        ("penalty_window", 0),
    ],
)
def test_a_value_out_of_range_is_named_with_what_is_allowed(
    name: str, value: float
) -> None:
    with pytest.raises(UsageError, match=rf"{name} is {value}; allowed: "):
        SamplingParams(**{name: value})


@given(
    st.lists(st.integers(0, 9), max_size=12),
    st.lists(st.integers(0, 9), max_size=4),
    st.one_of(st.none(), st.integers(1, 9)),
)
def test_every_row_looks_back_on_its_own_prefix(
    known: list[int], drafts: list[int], window: int | None
) -> None:
    rows = row_histories(
        known, mx.array(7), mx.array(drafts, dtype=mx.int32), window, 10
    )
    assert rows.shape[0] == len(drafts) + 1
    for j, row in enumerate(rows.tolist()):
        prefix = [*known, 7, *drafts[:j]]
        expected = prefix if window is None else prefix[-window:]
        assert [token for token in row if token != 10] == expected


def test_a_window_longer_than_the_text_takes_no_more_than_the_text() -> None:
    drafts = mx.array([4, 5], dtype=mx.int32)
    rows = row_histories([1, 2], mx.array(3), drafts, 10**12, 10)
    assert mx.array_equal(rows, row_histories([1, 2], mx.array(3), drafts, None, 10))


def test_draws_follow_the_distribution() -> None:
    logits = mx.log(mx.array([[0.5, 0.3, 0.15, 0.05]]))
    scores = score(logits, SamplingParams(temperature=1.0))
    draws = 20_000
    noise = gumbel_rows(7, 0, draws, 4)
    chosen = np.array(choose(mx.broadcast_to(scores, (draws, 4)), noise))
    counts = np.bincount(chosen, minlength=4)
    expected = draws * np.array([0.5, 0.3, 0.15, 0.05])
    chi_square = float(((counts - expected) ** 2 / expected).sum())
    assert chi_square < 16.27  # p = 0.001 at 3 degrees of freedom
