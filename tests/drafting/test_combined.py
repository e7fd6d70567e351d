# SPDX-License-Identifier: Apache-2.0
"""Lookup, drafter and plain steps in the engine's own cycles."""

from __future__ import annotations

import itertools
from collections.abc import Iterable

import mlx.core as mx
import pytest
import tiny

from splashpy.drafting.combined import CombinedDrafter
from splashpy.drafting.dflash2 import DFlash2Drafter
from splashpy.drafting.drafter import (
    Drafter,
    DraftSampling,
    Proposal,
    empty_proposal,
)
from splashpy.drafting.lookup import LookupDrafter
from splashpy.drafting.pace import FREE, Costs
from splashpy.drafting.plain import PlainDrafter
from splashpy.engine import task
from splashpy.engine.cycle import InFlight
from splashpy.engine.generation import generate
from splashpy.engine.request import GenerationRequest, TokensCommitted
from splashpy.engine.sequence import Sequence
from splashpy.models.target import MlxLmTarget, Target
from splashpy.verification.sampling import SamplingParams

PROMPT = tuple(range(30))
COSTS = Costs(((2, 1.1), (8, 1.3)), draft=0.2)
STEADY = SamplingParams(logit_bias=((5, 100.0),))  # the same token for ever


@pytest.fixture
def target() -> MlxLmTarget:
    return tiny.target()


def answer(
    target: MlxLmTarget,
    drafter: Drafter,
    sampling: SamplingParams = SamplingParams(),  # noqa: B008 - frozen
    *,
    seeded: bool = False,
    count: int = 200,
) -> list[TokensCommitted]:
    request = GenerationRequest(
        id="r",
        token_ids=PROMPT,
        sampling=sampling,
        seed=3,
        seeded=seeded,
        max_new_tokens=count,
    )
    events = generate(request, target, drafter, None, cancelled=lambda: False)
    return [event for event in events if isinstance(event, TokensCommitted)]


def text(cycles: list[TokensCommitted]) -> list[int]:
    return [token for cycle in cycles for token in cycle.token_ids]


def scripted(
    target: MlxLmTarget,
    right: Iterable[int],
    sampling: SamplingParams = SamplingParams(),  # noqa: B008 - frozen
) -> tuple[tiny.ScriptedDrafter, list[int]]:
    """A drafter whose i-th draft has ``right[i]`` right tokens, and the plain text."""
    plain = text(answer(target, PlainDrafter(), sampling))
    return tiny.ScriptedDrafter(plain, len(PROMPT), iter(right), block_size=5), plain


def test_a_drafter_that_is_always_wrong_is_hardly_asked(target: MlxLmTarget) -> None:
    drafter, plain = scripted(target, itertools.repeat(0))
    cycles = answer(target, CombinedDrafter(None, drafter, COSTS))
    assert text(cycles) == plain
    assert 0 < sum(cycle.drafted > 0 for cycle in cycles) < 0.08 * len(cycles)


class Forbidden(PlainDrafter):
    """Drafts what the answer's grammar never allows."""

    block_size = 5
    asked = 0

    def propose(
        self, state: None, anchor: mx.array, limit: int, sampling: DraftSampling
    ) -> Proposal:
        self.asked += 1
        return empty_proposal()


def test_a_drafter_whose_drafts_are_forbidden_is_hardly_asked(
    target: MlxLmTarget,
) -> None:
    drafter = Forbidden()
    cycles = answer(target, CombinedDrafter(None, drafter, COSTS))
    assert 0 < drafter.asked < 0.08 * len(cycles)
    assert sum(cycle.cost - 1 for cycle in cycles) == pytest.approx(0.2 * drafter.asked)


def test_a_drafter_that_is_right_drafts_whole_blocks(target: MlxLmTarget) -> None:
    drafter, plain = scripted(target, itertools.repeat(4))
    cycles = answer(target, CombinedDrafter(None, drafter, COSTS))
    assert text(cycles) == plain
    assert {cycle.drafted for cycle in cycles[1:-1]} == {4}


def test_with_free_costs_everything_is_drafted(target: MlxLmTarget) -> None:
    drafter, plain = scripted(target, itertools.repeat(0))
    cycles = answer(target, CombinedDrafter(LookupDrafter(), drafter, FREE))
    assert text(cycles) == plain
    assert all(cycle.drafted for cycle in cycles[1:-1])


def test_lookup_takes_over_where_the_text_repeats_itself(
    target: MlxLmTarget,
) -> None:
    drafter, plain = scripted(target, itertools.repeat(0), STEADY)
    lookup = LookupDrafter(cost=COSTS.verify(7))
    cycles = answer(target, CombinedDrafter(lookup, drafter, COSTS), STEADY)
    assert text(cycles) == plain
    assert sum("l" in cycle.sources for cycle in cycles) > 5
    assert len(cycles) < 40


@pytest.mark.parametrize("name", ["greedy", "seeded", "penalties"])
def test_pacing_a_real_drafter_changes_no_text(target: MlxLmTarget, name: str) -> None:
    sampling = {
        "greedy": SamplingParams(),
        "seeded": SamplingParams(temperature=0.8, top_k=20),
        "penalties": SamplingParams(repetition_penalty=1.2),
    }[name]
    seeded = name == "seeded"
    options = {"seeded": seeded, "count": 40}
    plain = answer(target, PlainDrafter(), sampling, **options)
    drafter = DFlash2Drafter(tiny.drafter_network(), target)
    target.tap(drafter.feature_layers)
    lookup = LookupDrafter(cost=COSTS.verify(7))
    for each, costs in ((lookup, FREE), (lookup, COSTS), (None, Costs(((8, 1.05),)))):
        paced = CombinedDrafter(each, drafter, costs)
        for _ in range(2):  # the second request knows the first
            cycles = answer(target, paced, sampling, **options)
            assert text(cycles) == text(plain)


def test_a_pause_keeps_one_plain_step_in_flight(
    target: MlxLmTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    flights: list[int] = []  # how many were in flight after each launch
    in_flight = 0
    launch, settle = task.launch, task.settle

    def launched(sequence: Sequence, target: Target) -> InFlight:
        nonlocal in_flight
        in_flight += 1
        flights.append(in_flight)
        return launch(sequence, target)

    def settled(sequence: Sequence, flight: InFlight) -> TokensCommitted:
        nonlocal in_flight
        in_flight -= 1
        return settle(sequence, flight)

    drafter, _ = scripted(target, itertools.repeat(0))
    monkeypatch.setattr(task, "launch", launched)
    monkeypatch.setattr(task, "settle", settled)
    lookup = LookupDrafter(cost=COSTS.verify(7))
    cycles = answer(target, CombinedDrafter(lookup, drafter, COSTS))
    assert max(flights) == 2
    assert flights.count(2) > 0.8 * len(cycles)


def test_a_pause_projects_no_features(target: MlxLmTarget) -> None:
    drafter = DFlash2Drafter(tiny.drafter_network(), target)
    target.tap(drafter.feature_layers)
    paced = CombinedDrafter(None, drafter, Costs(((8, 50.0),), 50.0))
    state = paced.new_state()
    width = 64 * len(drafter.feature_layers)
    for start in range(50):
        paced.observe(state, [1], mx.zeros((1, width)), start)
        assert paced.idle(state)
        assert len(paced.propose(state, mx.array(1), 9, DraftSampling())) == 0
    assert state.drafter.context.arrays == []
    assert state.drafter.queued == 50


def test_tokens_of_the_prompt_do_not_count_as_cycles(target: MlxLmTarget) -> None:
    drafter, _ = scripted(target, itertools.repeat(0))
    paced = CombinedDrafter(None, drafter, COSTS)
    state = paced.new_state()
    credit = state.pace._credit
    paced.observe(state, PROMPT, None, 0)
    assert state.pace._credit == credit


@pytest.mark.parametrize("right", [0, 4])
def test_the_better_of_lookup_and_drafter_is_asked(
    target: MlxLmTarget, right: int
) -> None:
    drafter, plain = scripted(target, itertools.repeat(right))
    paced = CombinedDrafter(LookupDrafter(cost=COSTS.verify(7)), drafter, COSTS)
    state = paced.new_state()
    paced.observe(state, [*PROMPT, *plain[:1], *PROMPT], None, 0)
    state.pace.note(1.0, 20)  # credit enough
    for _ in range(8):
        state.pace.note_drafted(4, 1 + right)
    assert state.lookup is not None
    state.lookup.yields[5].mean = 3.0  # tokens a lookup of this depth commits
    found = paced.propose(state, mx.array(PROMPT[-1]), 9, DraftSampling())
    assert (found.source == "l") == (right == 0)


def test_a_lookup_that_is_wished_drafts_where_nothing_pays(
    target: MlxLmTarget,
) -> None:
    drafter, plain = scripted(target, itertools.repeat(0), STEADY)
    dear = Costs(((2, 6.0), (8, 8.0)), draft=1.0)
    waiting = LookupDrafter(cost=dear.verify(7))
    for lookup, drafts in ((LookupDrafter(), True), (waiting, False)):
        cycles = answer(target, CombinedDrafter(lookup, drafter, dear), STEADY, count=9)
        assert text(cycles) == plain[:9]
        assert any(cycle.drafted for cycle in cycles) == drafts


def test_what_cycles_take_becomes_what_they_cost(target: MlxLmTarget) -> None:
    drafter, _ = scripted(target, itertools.repeat(4))
    ticks = map(float, itertools.count())  # every cycle takes a second
    model = Costs(((2, 1.2), (8, 1.4)), draft=0.2, plain_seconds=1.0)
    paced = CombinedDrafter(None, drafter, model, clock=lambda: next(ticks))
    assert paced.costs.drafted(4) > 1.4
    answer(target, paced)
    assert paced.costs.drafted(4) == pytest.approx(1.0, abs=0.05)


def test_a_cycle_tells_who_drafted_and_what_that_was_to_cost(
    target: MlxLmTarget,
) -> None:
    lookup = LookupDrafter(cost=COSTS.verify(7))
    cycles = []
    for looks in (lookup, None):
        drafter, _ = scripted(target, itertools.cycle([4, 0]), STEADY)
        cycles += answer(target, CombinedDrafter(looks, drafter, COSTS), STEADY)[1:]
    assert {cycle.by for cycle in cycles} == {"a", "l", "t"}
    for cycle in cycles:
        cost = {
            "t": 1.0,
            "a": COSTS.drafted(cycle.drafted),
            "l": COSTS.verify(cycle.drafted + 1),
        }
        assert cycle.cost == pytest.approx(cost[cycle.by])
        assert (cycle.by == "t") == (cycle.drafted == 0)


def test_a_long_copy_that_cannot_be_afforded_whole_is_begun() -> None:
    page = list(range(100, 160))
    drafter = tiny.ScriptedDrafter(page, len(page), itertools.repeat(0), block_size=2)
    combined = CombinedDrafter(LookupDrafter(cost=1.1), drafter, COSTS)
    state = combined.new_state()
    combined.observe(state, page, None, 0)
    for _ in range(3):  # a drafter that fails spends what may be lost, and rests
        state.pace.note_drafted(1, 1)

    copied, drafts, source = 0, [], ""
    while not drafts and copied < 32:
        anchor, place = mx.array(page[copied]), len(page) + copied
        found = combined.propose(state, anchor, 31, DraftSampling(position=place))
        drafts, source = found.token_ids.tolist(), found.source
        if not drafts:
            combined.observe(state, [page[copied]], None, place)
            copied += 1

    assert source == "l"
    assert drafts == page[copied : copied + len(drafts)]
    assert len(drafts) < 31
