# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from splashpy.bench.statistics import percentile, speedup

ratios = st.dictionaries(
    st.text(min_size=1, max_size=3),
    st.lists(st.floats(0.2, 20), min_size=1, max_size=5),
    min_size=1,
    max_size=6,
)


def test_prompts_count_by_their_median_and_together_by_geometric_mean() -> None:
    found = speedup({"a": [2.0, 2.0, 9.0], "b": [0.5, 0.5, 0.5]})
    assert found is not None
    assert found.geomean.value == pytest.approx(1.0)
    assert (found.worst.value, found.worst_prompt) == (pytest.approx(0.5), "b")
    assert (found.prompts, found.pairs) == (2, 6)
    assert found.by_prompt["a"].value == pytest.approx(2.0)


def test_repeats_that_agree_leave_no_interval_for_a_prompt() -> None:
    found = speedup({"a": [1.5] * 4})
    assert found is not None
    assert found.worst.low == found.worst.high == pytest.approx(1.5)
    assert found.spread == pytest.approx(0.0)
    assert not found.inconclusive


def test_repeats_that_differ_by_more_than_five_percent_are_inconclusive() -> None:
    found = speedup({"a": [1.0, 1.06], "b": [1.0, 1.06]})
    assert found is not None
    assert found.spread == pytest.approx(0.06 / math.sqrt(1.06), rel=0.01)
    assert found.inconclusive


def test_one_repeat_says_nothing_about_spread() -> None:
    found = speedup({"a": [1.0], "b": [1.2]})
    assert found is not None
    assert found.spread is None
    assert found.inconclusive
    assert found.fields()["spread"] is None


def test_nothing_measured_gives_nothing() -> None:
    assert speedup({}) is None
    assert speedup({"a": []}) is None
    assert percentile([], 50) is None


def test_the_interval_covers_the_truth_about_as_often_as_it_says() -> None:
    """Samples from a known distribution, many times over."""
    rng = np.random.default_rng(1)
    truth, covered, runs = 1.4, 0, 100
    for _ in range(runs):
        samples = {
            str(p): list(truth * np.exp(rng.normal(0, 0.2) + rng.normal(0, 0.02, 3)))
            for p in range(20)
        }
        found = speedup(samples)
        assert found is not None
        covered += found.geomean.low <= truth <= found.geomean.high
    # 95 % is meant; the percentile interval of 20 prompts is a little too narrow.
    assert 0.85 <= covered / runs <= 0.99


@settings(max_examples=25)
@given(ratios)
def test_every_estimate_lies_in_its_interval(samples: dict[str, list[float]]) -> None:
    found = speedup(samples)
    assert found is not None
    for estimate in (found.worst, *found.by_prompt.values()):
        assert estimate.low <= estimate.value * (1 + 1e-9)
        assert estimate.value <= estimate.high * (1 + 1e-9)
    lowest = min(min(each) for each in samples.values())
    highest = max(max(each) for each in samples.values())
    assert lowest * (1 - 1e-9) <= found.geomean.low <= found.geomean.high
    assert found.geomean.high <= highest * (1 + 1e-9)
    assert found.worst.value == min(e.value for e in found.by_prompt.values())


def test_the_same_samples_give_the_same_interval() -> None:
    samples = {"a": [1.0, 1.1, 1.3], "b": [0.9, 1.2, 1.0]}
    assert speedup(samples) == speedup(samples)
