# SPDX-License-Identifier: Apache-2.0
"""Costs that follow what cycles take, on machines that are made up."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from splashpy.drafting.live_costs import PLAIN, Kind, LiveCosts
from splashpy.drafting.pace import FREE, Costs, Pace, usual_acceptance

MODEL = Costs(((2, 1.1), (8, 1.3)), draft=0.2, plain_seconds=0.01)
BLOCK = Kind(5, drafter=True)


def live(model: Costs = MODEL) -> LiveCosts:
    return LiveCosts(model)


def test_they_begin_with_what_was_timed() -> None:
    costs = live()
    for rows in range(1, 12):
        assert costs.verify(rows) == MODEL.verify(rows)
        assert costs.drafted(rows) == MODEL.drafted(rows)


@given(factor=st.floats(0.7, 6.0))
def test_a_kind_that_is_seen_costs_what_it_takes(factor: float) -> None:
    costs = live()
    true = factor * MODEL.drafted(4)
    for _ in range(60):
        costs.note(BLOCK, true * MODEL.plain_seconds)
    assert costs.drafted(4) == pytest.approx(true, rel=0.02)


def test_what_was_not_seen_is_off_by_as_much() -> None:
    costs = live()
    for _ in range(200):
        costs.note(BLOCK, 2 * MODEL.drafted(4) * MODEL.plain_seconds)
    assert costs.verify(7) == pytest.approx(2 * MODEL.verify(7), rel=0.02)
    assert costs.verify(1) == 1.0


def test_one_hiccup_changes_little() -> None:
    costs = live()
    for _ in range(50):
        costs.note(BLOCK, MODEL.drafted(4) * MODEL.plain_seconds)
    costs.note(BLOCK, 100.0)
    costs.note(PLAIN, 100.0)
    assert costs.drafted(4) == pytest.approx(MODEL.drafted(4), rel=0.15)


def test_a_machine_that_becomes_slower_for_all_changes_no_cost() -> None:
    costs = live()
    for _ in range(100):
        costs.note(PLAIN, 3 * MODEL.plain_seconds)
    for _ in range(50):
        costs.note(BLOCK, 3 * MODEL.plain_seconds * MODEL.drafted(4))
    assert costs.drafted(4) == pytest.approx(MODEL.drafted(4), rel=0.01)


def test_a_kind_not_seen_for_long_is_forgotten() -> None:
    costs = live()
    for _ in range(50):
        costs.note(BLOCK, 5 * MODEL.plain_seconds)
    for _ in range(200):
        costs.note(Kind(3, drafter=True), MODEL.drafted(2) * MODEL.plain_seconds)
    assert costs.drafted(4) == pytest.approx(MODEL.drafted(4), rel=0.05)


def test_where_nothing_was_timed_nothing_is_learned() -> None:
    costs = live(FREE)
    costs.note(BLOCK, 5.0)
    costs.note(PLAIN, 1.0)
    assert costs.drafted(4) == costs.verify(9) == 1.0


def test_a_longer_text_costs_what_the_model_says_of_its_length() -> None:
    """What was learned at one length is carried to another as a factor."""
    model = replace(MODEL, depths=((1, 0.0001), (8, 0.0008)))
    costs = live(model)
    costs.stand_at(10_000)
    far = model.at(10_000 // 256 * 256)
    assert costs.drafted(4) == far.drafted(4)
    for _ in range(100):
        costs.note(PLAIN, 1.5 * far.plain_seconds)
        costs.note(BLOCK, 1.5 * far.plain_seconds * 2 * far.drafted(4))
    assert costs.drafted(4) == pytest.approx(2 * far.drafted(4), rel=0.02)
    costs.stand_at(100)
    assert costs.drafted(4) == pytest.approx(2 * model.drafted(4), rel=0.02)


@pytest.mark.parametrize("right", [0, 1, 4])
@pytest.mark.parametrize("factor", [0.7, 1.0, 4.0])
def test_a_wrong_beginning_does_not_make_long_answers_slow(
    right: int, factor: float
) -> None:
    """The drafts' true cost is ``factor`` times the model's; noise of a fifth."""
    true = Costs(((2, 1.1 * factor), (8, 1.3 * factor)), draft=0.2 * factor)
    random = Random(1)
    costs = live()
    pace = Pace(costs, usual_acceptance(4))
    tokens, spent, before = 0, 0.0, PLAIN
    while tokens < 2000:
        count = pace.count(100)
        cost = true.drafted(count) if count else 1.0
        kind = Kind(count + 1, drafter=count > 0)
        committed = 1 + min(count, right)
        if count or before == PLAIN:
            costs.note(kind, cost * MODEL.plain_seconds * random.uniform(0.8, 1.2))
        before = kind
        if count:
            pace.note_drafted(count, committed)
        else:
            pace.note(1.0, 1)
        tokens, spent = tokens + committed, spent + cost
    best = max(1.0, *((1 + min(n, right)) / true.drafted(n) for n in range(1, 5)))
    assert tokens / spent > 0.94 * best
