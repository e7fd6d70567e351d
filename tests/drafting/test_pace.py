# SPDX-License-Identifier: Apache-2.0
"""How much is drafted, on made-up costs and acceptances."""

from __future__ import annotations

import itertools
import random
import statistics
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from splashpy.drafting.pace import (
    FREE,
    GRANT,
    LONGEST_GAP,
    SHARE,
    Acceptance,
    Costs,
    Pace,
    usual_acceptance,
)

USUAL_COSTS = Costs(((2, 1.1), (8, 1.3)), draft=0.2)
SLOTS = 4


@dataclass
class Written:
    """A simulated answer."""

    tokens: int = 0
    cost: float = 0.0
    cycles: int = 0
    drafting: int = 0
    counts: tuple[int, ...] = ()


def write(
    pace: Pace, costs: Costs, right: Iterable[int], tokens: int, limit: int = 100
) -> Written:
    """Let ``right[i]`` drafts be right in the i-th cycle that drafts."""
    lengths: Iterator[int] = itertools.chain(right, itertools.repeat(0))
    done = Written()
    while done.tokens < tokens:
        count = pace.count(limit)
        committed = 1
        if count:
            committed += min(next(lengths), count)
            pace.note_drafted(count, committed)
            done.cost += costs.drafted(count)
            done.drafting += 1
        else:
            pace.note(1.0, 1)
            done.cost += 1.0
        done.tokens += committed
        done.cycles += 1
        done.counts += (count,)
    return done


def begin(costs: Costs = USUAL_COSTS, usual: Acceptance | None = None) -> Pace:
    return Pace(costs, usual or usual_acceptance(SLOTS))


def test_drafts_that_are_always_wrong_are_soon_given_up() -> None:
    done = write(begin(), USUAL_COSTS, itertools.repeat(0), 1000)
    assert done.drafting < 0.03 * done.cycles
    assert done.cost < 1.02 * done.tokens


def test_drafts_that_are_always_right_are_made_in_full() -> None:
    done = write(begin(), USUAL_COSTS, itertools.repeat(SLOTS), 1000)
    assert set(done.counts) == {SLOTS}


def test_costly_late_slots_that_never_hold_are_not_drafted() -> None:
    costs = Costs(((2, 1.1), (8, 4.0)), draft=0.1)
    done = write(begin(costs), costs, itertools.repeat(1), 300)
    assert set(done.counts[100:]) == {1}


def test_drafting_comes_back_when_the_text_becomes_predictable() -> None:
    pace = begin()
    write(pace, USUAL_COSTS, itertools.repeat(0), 500)
    done = write(pace, USUAL_COSTS, itertools.repeat(SLOTS), 500)
    first = next(i for i, count in enumerate(done.counts) if count)
    assert first <= LONGEST_GAP
    assert 0 not in done.counts[first:]


def test_a_request_begins_with_what_earlier_ones_have_shown() -> None:
    usual = usual_acceptance(SLOTS)
    first = write(begin(usual=usual), USUAL_COSTS, itertools.repeat(0), 500)
    second = write(begin(usual=usual), USUAL_COSTS, itertools.repeat(0), 500)
    assert second.cost - second.tokens < 0.8 * (first.cost - first.tokens)
    assert second.counts[0] == 0, "it begins with plain steps"


def test_earlier_requests_that_went_well_outweigh_a_bad_beginning() -> None:
    usual = usual_acceptance(SLOTS)
    write(begin(usual=usual), USUAL_COSTS, itertools.repeat(SLOTS), 500)
    done = write(begin(usual=usual), USUAL_COSTS, [0, *[3] * 50], 100)
    assert done.counts[0] == SLOTS
    assert 0 not in done.counts[16:], "what the first one cost is earned again by then"


def test_an_answer_of_ten_tokens_whose_drafts_fail_loses_a_twentieth() -> None:
    done = write(begin(), USUAL_COSTS, itertools.repeat(0), 9)
    assert done.cost <= done.tokens / 0.95


@given(
    right=st.lists(st.integers(0, 7), max_size=300),
    verify=st.lists(st.floats(1.0, 9.0), min_size=2, max_size=2).map(sorted),
    draft=st.floats(0.0, 5.0),
    slots=st.integers(1, 7),
    tokens=st.integers(32, 160),
)
def test_no_text_takes_much_longer_than_plain_decoding(
    right: list[int], verify: list[float], draft: float, slots: int, tokens: int
) -> None:
    costs = Costs(((2, verify[0]), (8, verify[1])), draft)
    pace = Pace(costs, usual_acceptance(slots))
    done = write(pace, costs, right, tokens)
    assert done.cost <= done.tokens + GRANT + SHARE * done.tokens
    assert done.cost <= done.tokens / 0.95


@given(st.lists(st.integers(0, 4), max_size=60), st.integers(1, 9))
def test_where_drafts_cost_nothing_all_are_made(right: list[int], limit: int) -> None:
    done = write(begin(FREE), FREE, right, 100, limit)
    assert set(done.counts) == {min(limit, SLOTS)}


def test_the_end_of_the_budget_is_no_reason_to_draft_too_little() -> None:
    costs = Costs(((2, 1.5), (8, 1.6)), draft=0.3)
    pace = begin(costs)
    write(pace, costs, itertools.repeat(SLOTS), 100)
    assert pace.count(100) == SLOTS
    assert pace.count(1) in (0, 1)
    assert pace.count(0) == 0
    usual = usual_acceptance(SLOTS)
    assert Pace(Costs(((2, 1.8),)), usual).count(1) == 0, "one draft cannot pay"


def test_asking_twice_gives_the_same_count() -> None:
    pace = begin()
    assert pace.count(9) == pace.count(9)


def test_a_slot_that_was_not_tried_is_expected_to_do_as_the_one_ahead_of_it() -> None:
    acceptance = Acceptance([0.5] * 3, memory=1.0)
    for _ in range(1000):
        acceptance.note(3, 1)
    first, second, third = acceptance.chances
    assert first > 0.99
    assert second < 0.01
    assert third == pytest.approx(second)
    one, two, three, four = acceptance.expected()
    assert one == 1.0
    assert two == pytest.approx(1 + first)
    assert three == pytest.approx(1 + first + first * second)
    assert four == pytest.approx(three + first * second * third)

    known = Acceptance([0.4, 0.6, 0.8], memory=1.0)
    for _ in range(1000):
        known.note(1, 1)
    better = known.chances
    assert better[0] > 0.99
    assert better[1:] == [1.0, 1.0]
    assert Acceptance([0.4, 0.6, 0.8], memory=1.0).chances == [0.4, 0.6, 0.8]


@pytest.mark.parametrize(
    ("rows", "cost"), [(1, 1.0), (2, 1.2), (5, 1.5), (8, 1.8), (15, 2.6)]
)
def test_widths_that_were_not_measured_lie_on_lines(rows: int, cost: float) -> None:
    assert Costs(((2, 1.2), (8, 1.8))).verify(rows) == pytest.approx(cost)


DEEP = Costs(
    ((2, 1.2), (8, 1.8)),
    draft=0.3,
    plain_seconds=0.01,
    depths=((1, 0.0001), (8, 0.0008)),
)


def test_a_long_context_makes_wide_passes_dearer_and_drafts_cheaper() -> None:
    """At 10,000 tokens a plain step takes twice as long, a pass of 8 rows 8 more."""
    far = DEEP.at(10_000)
    assert far.plain_seconds == pytest.approx(0.02)
    assert far.verify(1) == 1.0
    assert far.verify(8) == pytest.approx((1.8 + 8) / 2)
    assert far.verify(2) == pytest.approx((1.2 + 2) / 2)
    assert far.draft == pytest.approx(0.15)
    assert DEEP.at(0) == DEEP
    assert USUAL_COSTS.at(10_000) == USUAL_COSTS, "nothing is known of its depth"


def test_a_pass_of_several_texts_costs_what_was_measured_for_some() -> None:
    costs = Costs(((2, 1.1), (8, 1.7)), shared=((2, 1, 1.5), (2, 4, 2.04), (4, 1, 3.0)))
    assert costs.together(2, 1) == pytest.approx(1.5)
    assert costs.together(2, 4) == pytest.approx(2.04)
    assert costs.together(4, 1) == pytest.approx(3.0)
    assert costs.together(3, 1) == pytest.approx(1.5 * costs.verify(3) / 1.1)
    assert costs.together(2, 8) == pytest.approx(costs.verify(16) * 2.04 / 1.7)
    assert costs.together(1, 8) == costs.verify(8)
    assert USUAL_COSTS.together(4, 2) == USUAL_COSTS.verify(8)


MACHINES = {
    "27B in 4 bits on a GPU": Costs(((2, 1.08), (8, 1.4), (16, 2.4)), draft=0.3),
    "27B in 8 bits on a GPU": Costs(((2, 1.02), (8, 1.15), (16, 1.6)), draft=0.2),
    "long context, unfused attention": Costs(((2, 1.3), (8, 3.1)), draft=0.3),
    "135M on two cores": Costs(((2, 1.01), (5, 1.66), (7, 2.24)), draft=0.13),
    "experts, every row reads others": Costs(((2, 1.6), (8, 3.8)), draft=0.2),
}


def luck(chance: float, seed: int) -> Iterator[int]:
    """How many drafts in a row are right, each with the same chance."""
    dice = random.Random(seed)
    while True:
        yield next(n for n in itertools.count() if dice.random() >= chance)


@pytest.mark.parametrize("chance", [0.15, 0.4, 0.6, 0.75, 0.9, 0.97])
@pytest.mark.parametrize("machine", MACHINES)
def test_the_width_settles_within_one_of_the_best(machine: str, chance: float) -> None:
    costs, slots = MACHINES[machine], 7
    expected = list(itertools.accumulate(chance**n for n in range(slots + 1)))
    rates = [1.0, *(expected[n] / costs.drafted(n) for n in range(1, slots + 1))]
    best = max(range(slots + 1), key=rates.__getitem__)
    usual = usual_acceptance(slots)
    write(Pace(costs, usual), costs, luck(chance, 1), 2000)
    done = write(Pace(costs, usual), costs, luck(chance, 2), 2000)
    rate = done.tokens / done.cost
    assert rate > 0.97
    if rates[best] > 1.1:  # less is not told from nothing by the last ten cycles
        chosen = statistics.median_low(done.counts)
        near = rates[chosen] > 0.98 * rates[best]  # where many are as good
        assert abs(chosen - best) <= 1 or near, (chosen, best, rates)
        assert rate > 0.95 * rates[best]


@pytest.mark.parametrize("machine", MACHINES)
def test_one_bad_request_does_not_switch_drafts_off_for_good(machine: str) -> None:
    costs, slots = MACHINES[machine], 7
    alone = write(Pace(costs, usual_acceptance(slots)), costs, luck(0.9, 3), 600)
    usual = usual_acceptance(slots)
    bad = write(Pace(costs, usual), costs, itertools.repeat(0), 2000)
    assert bad.cost <= bad.tokens / 0.95
    after = write(Pace(costs, usual), costs, luck(0.9, 3), 600)
    assert after.cost < 1.15 * alone.cost
    later = write(Pace(costs, usual), costs, luck(0.9, 4), 600)
    assert later.drafting > 0.8 * later.cycles
