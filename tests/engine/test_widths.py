# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from splashpy.drafting.pace import FREE, Costs
from splashpy.engine.widths import MOST_ROWS, Widths

COSTS = Costs(((8, 1.5), (32, 3.0)), draft=0.1, plain_seconds=0.01)
SURE = [float(1 + count) for count in range(8)]
POOR = [1.0, *[1.05] * 7]


def settled(texts: int) -> Widths:
    """Widths that have timed plain cycles, which took what was measured at load."""
    widths = Widths(COSTS)
    for _ in range(3):
        widths.note(texts, 0, COSTS.verify(texts) * COSTS.plain_seconds)
    return widths


@given(st.lists(st.sampled_from([SURE, POOR, [1.0]]), min_size=1, max_size=40))
def test_a_pass_never_has_more_than_its_rows(expected: list[list[float]]) -> None:
    drafts = Widths(FREE).choose(expected)
    assert drafts == 0 or len(expected) * (drafts + 1) <= MOST_ROWS


def test_good_drafts_are_made_and_poor_ones_are_not() -> None:
    assert settled(4).choose([SURE] * 4) == 7
    assert settled(4).choose([POOR] * 4) == 0


def test_plain_cycles_are_timed_before_anything_is_drafted() -> None:
    widths = Widths(COSTS)
    assert widths.choose([SURE] * 4) == 0
    assert settled(4).choose([SURE] * 4) > 0


def test_drafts_that_turn_out_dear_are_given_up() -> None:
    widths = settled(4)
    drafts = widths.choose([SURE] * 4)
    for _ in range(40):
        widths.note(4, drafts, 1.0)  # a hundred plain cycles
    assert widths.choose([SURE] * 4) < drafts


def test_what_did_not_pay_is_tried_again_less_and_less_often() -> None:
    widths = settled(2)
    tries = [widths.choose([POOR] * 2) > 0 for _ in range(200)]
    places = [index for index, tried in enumerate(tries) if tried]
    gaps = [after - before for before, after in itertools.pairwise(places)]
    assert len(places) >= 3
    assert gaps == sorted(gaps)
    assert sum(tries) < 10


def test_the_costs_of_four_texts_say_nothing_about_those_of_two() -> None:
    widths = settled(2)
    for _ in range(40):
        widths.note(4, 7, 1.0)
    assert widths.choose([SURE] * 2) == 7
