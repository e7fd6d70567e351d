# SPDX-License-Identifier: Apache-2.0
"""What the ledger grants, what it refuses, and who gives back first."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mlx.core as mx
import pytest
import tiny
from hypothesis import given, settings
from hypothesis import strategies as st

from splashpy.cache.plan import Policy
from splashpy.cache.prefix import PrefixCache
from splashpy.drafting.plain import PlainDrafter
from splashpy.engine.accounts import lane_size, open_ledger
from splashpy.engine.generation import generate
from splashpy.engine.lane_claim import COPIES, LaneClaim, LaneSize
from splashpy.engine.loading import Loaded
from splashpy.engine.memory import Needs, Plan
from splashpy.engine.memory_ledger import (
    CATEGORIES,
    SOURCES,
    Category,
    Claim,
    MemoryLedger,
    Source,
)
from splashpy.engine.request import Finished, GenerationRequest, TokensCommitted
from splashpy.engine.task import Means, Task
from splashpy.errors import CapacityError, ShortageError
from splashpy.models.state import TargetState
from splashpy.models.target import MlxLmTarget
from splashpy.protocol import DraftState, Shed
from splashpy.verification.sampling import SamplingParams

BUDGET = 1000

Step = tuple[str, Category, int, int]
"""What is done, for what, how many bytes, and with which of the claims so far."""

steps = st.lists(
    st.tuples(
        st.sampled_from(["reserve", "cover", "release", "use"]),
        st.sampled_from(CATEGORIES),
        st.integers(0, 1200),
        st.integers(0, 50),
    ),
    max_size=40,
)


@given(steps=steps, given_back=st.integers(0, 200))
def test_what_is_granted_never_exceeds_the_budget_and_nothing_goes_negative(
    steps: list[Step], given_back: int
) -> None:
    used = [0]
    ledger = MemoryLedger(BUDGET, lambda: used[0])
    stored = ledger.claim("runs", 300)
    claims: list[Claim] = []

    def give(missing: int) -> int:
        before = stored.nbytes
        stored.hold(max(before - min(missing, given_back), 0))
        return before - stored.nbytes

    ledger.offer("stored", give)
    for what, category, size, which in steps:
        used[0] = size if what == "use" and size <= BUDGET else used[0]
        claim = claims[which % len(claims)] if claims else None
        before = ledger.charged
        try:
            if what == "reserve":
                claims.append(ledger.reserve(size, "a test", category))
            elif what == "cover" and claim:
                claim.cover(size, "a test")
            elif what == "release" and claim:
                claim.release()
        except ShortageError:
            assert ledger.charged <= before
        assert ledger.charged <= BUDGET
        assert min(ledger.held.values()) >= 0
    for claim in claims:
        claim.release()
        claim.release()
    assert sum(ledger.held.values()) == stored.nbytes


def givers(ledger: MemoryLedger, **gives: int) -> list[Source]:
    """Let sources give back so much of one claim on everything; who was asked."""
    held, asked = ledger.claim("runs", ledger.budget), []

    def giver(source: Source, most: int) -> Callable[[int], int]:
        def give(missing: int) -> int:
            asked.append(source)
            held.hold(held.nbytes - most)
            return most

        return give

    for source in reversed(SOURCES):
        if source in gives:
            ledger.offer(source, giver(source, gives[source]))
    return asked


def test_the_cheapest_loss_comes_first_and_no_more_is_asked_than_needed() -> None:
    told: list[tuple[Source, int]] = []
    ledger = MemoryLedger(BUDGET, tell=lambda *given: told.append(given))
    asked = givers(ledger, buffers=100, stored=400)
    ledger.reserve(100, "a text")
    assert asked == ["buffers"]
    ledger.reserve(500, "another text")
    assert asked == ["buffers", "buffers", "stored"]
    assert told == [("buffers", 100), ("buffers", 100), ("stored", 400)]


def test_a_refusal_says_what_was_asked_for_and_who_has_the_memory() -> None:
    ledger = MemoryLedger(10_000_000)
    ledger.claim("weights", 6_000_000)
    lane = ledger.reserve(3_000_000, "a text", "lanes")
    with pytest.raises(ShortageError) as raised:
        lane.cover(5_000_000, "8K tokens of context")
    assert raised.value.message == (
        "8K tokens of context: needs 2.0 MB more, 1.0 MB are free"
    )
    assert raised.value.why == "weights 6.0 MB + lanes 3.0 MB of 10.0 MB"
    assert lane.nbytes == 3_000_000
    report = ledger.report()
    assert (report.refused, report.refusal) == (1, raised.value.message)
    assert (report.held.weights, report.held.lanes) == (6_000_000, 3_000_000)


def test_memory_that_nobody_claimed_counts_as_well() -> None:
    ledger = MemoryLedger(BUDGET, lambda: 950)
    assert not ledger.fits(100)
    with pytest.raises(ShortageError):
        ledger.reserve(100, "a text")


def test_without_a_known_budget_nothing_is_refused() -> None:
    ledger = MemoryLedger(in_use=lambda: 1 << 50)
    assert ledger.reserve(1 << 50, "a text").nbytes == 1 << 50
    assert ledger.make_room(1 << 50)


@pytest.mark.parametrize("kind", ["llama", "qwen3_next", "gemma4"])
def test_a_claim_covers_what_a_text_really_takes(kind: str) -> None:
    """Rows of any length of passes, against the arrays themselves."""
    target = tiny.target(kind)
    sizes = target.state_sizes()
    fixed = COPIES * sizes.fixed
    claim = LaneClaim(MemoryLedger(), LaneSize(row=sizes.row, fixed=fixed))
    state = target.new_state(40)
    for rows in (30, 1, 200, 7, 400):
        claim.cover(state, rows)
        target.forward(state, mx.arange(rows) % target.facts.vocab_size, rows=0)
        mx.eval(state.arrays)
        assert state.nbytes <= claim.nbytes
        if not fixed:
            assert state.nbytes == claim.nbytes


def kept_at(target: MlxLmTarget, claim: LaneClaim, places: int) -> TargetState:
    """A text that reads four rows to every place, and keeps it."""
    state = target.new_state(40)
    for _ in range(places):
        claim.cover(state, 4)
        target.forward(state, mx.arange(4), rows=0)
        assert claim.may_keep(state)
        state.keep()
    return state


@pytest.mark.parametrize("kind", ["qwen3_next", "gemma4"])
@pytest.mark.parametrize("places", [0, 2, 4])
def test_a_claim_covers_a_text_that_writes_with_places_behind_it(
    kind: str, places: int
) -> None:
    target = tiny.target(kind)
    sizes = target.state_sizes()
    size = LaneSize(row=sizes.row, fixed=COPIES * sizes.fixed)
    claim = LaneClaim(MemoryLedger(), size)
    state = kept_at(target, claim, places)
    for _ in range(2):  # a block can be taken back: what was before it is held, too
        claim.cover(state, 3)
        forward = target.forward(state, mx.arange(3), rows=3)
        mx.eval(forward.logits, state.arrays)
        assert state.nbytes <= claim.nbytes


def test_a_text_gives_up_places_of_its_own_before_it_is_refused() -> None:
    target = tiny.target("qwen3_next")
    sizes = target.state_sizes()
    ledger = MemoryLedger(1 << 30)
    size = LaneSize(row=sizes.row, fixed=COPIES * sizes.fixed)
    claim = LaneClaim(ledger, size)
    state = kept_at(target, claim, 5)
    places = state.checkpoints
    ledger.budget = ledger.charged + 250 * sizes.row
    claim.cover(state, 200)
    assert state.checkpoints == places, "there was room"
    claim.cover(state, 400)
    assert state.checkpoints == places[-2:]
    assert ledger.held["states"] == 0
    target.forward(state, mx.arange(400) % 250, rows=0)
    mx.eval(state.arrays)
    assert state.nbytes <= claim.nbytes


def test_further_places_are_kept_only_where_there_is_room_for_them() -> None:
    target = tiny.target("qwen3_next")
    ledger = MemoryLedger(BUDGET)
    claim = LaneClaim(ledger, LaneSize(fixed=COPIES * 400))
    state = target.new_state(40)
    kept = []
    for _ in range(5):
        target.forward(state, mx.arange(4), rows=0)
        kept.append(claim.may_keep(state))
        if kept[-1]:
            state.keep()
    assert kept == [True, True, True, True, False]
    assert ledger.held["states"] == 800
    assert ledger.report().refused == 0


def ask(first: int, length: int) -> GenerationRequest:
    return GenerationRequest(
        id=str(first),
        token_ids=tuple((first + i) % 250 for i in range(length)),
        sampling=SamplingParams(),
        seed=1,
        max_new_tokens=8,
    )


def written(events: list[Any]) -> list[int]:
    return [t for e in events if isinstance(e, TokensCommitted) for t in e.token_ids]


ROWS = 450


def loaded(target: MlxLmTarget) -> Loaded:
    """A model whose plan has no budget; a test gives the ledger one."""
    facts = target.facts
    needs = Needs(
        target=facts.weight_bytes, row=facts.kv_bytes_per_token, context_max=ROWS
    )
    plan = Plan(needs=needs, budget=1, kv="bf16", context=ROWS)
    drafter, draft = PlainDrafter(), DraftState()
    return Loaded(target=target, drafter=drafter, draft=draft, plan=plan)


class World:
    """A model with so little memory that two texts just fit."""

    def __init__(self, target: MlxLmTarget) -> None:
        self.target, self.cache = target, PrefixCache(policy=Policy(shortest=1))
        self.sheds: list[Shed] = []
        self.loaded = loaded(target)
        self.ledger = open_ledger(
            self.loaded, self.cache, shed=self.sheds.append, in_use=lambda: 0
        )
        rows = ROWS * target.facts.kv_bytes_per_token
        self.ledger.budget = self.ledger.charged + rows

    def run(self, first: int, length: int) -> list[Any]:
        claim = LaneClaim(self.ledger, lane_size(self.loaded))
        means = Means(self.target, PlainDrafter(), self.cache, claim=claim)
        task = Task(ask(first, length), means, lambda: False)
        events = list(task.begin())
        try:
            while not task.ended:
                events += task.write() if task.writing else task.read()
        finally:
            claim.release()
        return events

    def alone(self, first: int, length: int) -> list[Any]:
        request, drafter = ask(first, length), PlainDrafter()
        return list(
            generate(request, self.target, drafter, None, cancelled=lambda: False)
        )


RUNS, LENGTH = 4, 50


def filled(target: MlxLmTarget) -> PrefixCache:
    """States of some earlier requests."""
    cache = PrefixCache(policy=Policy(shortest=1))
    for first in range(RUNS):
        ids = tuple(range(50 * first, 50 * first + LENGTH))
        state = target.new_state(LENGTH)
        mx.eval(target.forward(state, mx.array(ids), rows=0).logits, state.arrays)
        cache.take(ids)
        cache.insert(ids, state)
    return cache


@settings(max_examples=15)
@given(wanted=st.lists(st.integers(0, 8 * LENGTH), min_size=1, max_size=12))
def test_texts_and_stored_states_never_take_more_than_both_may(
    llama: MlxLmTarget, wanted: list[int]
) -> None:
    cache = filled(llama)
    ledger = open_ledger(loaded(llama), cache, in_use=lambda: 0)
    row = cache.nbytes // cache.num_tokens
    ledger.budget = ledger.charged + 2 * LENGTH * row
    most = ledger.budget - ledger.charged + cache.nbytes
    text = ledger.claim("lanes")
    for rows in wanted:
        stored, told = cache.nbytes, ledger.report().refused
        free = ledger.make_room(rows * row - text.nbytes)
        assert free == (rows * row <= most)
        if not free:
            assert (cache.nbytes, ledger.report().refused) == (stored, told)
            with pytest.raises(ShortageError):
                text.cover(rows * row, "a text")
        else:
            text.cover(rows * row, "a text")
            text.hold(rows * row)
        assert ledger.charged <= ledger.budget


def test_stored_states_make_room_where_more_is_in_use_than_was_claimed(
    llama: MlxLmTarget,
) -> None:
    cache = filled(llama)
    held, others = cache.nbytes, 1 << 30
    ledger = open_ledger(loaded(llama), cache, in_use=lambda: others + cache.nbytes)
    ledger.budget = others + held
    assert ledger.make_room(1)
    assert 0 < cache.nbytes < held
    assert not ledger.make_room(2 * held)
    assert cache.nbytes > 0, "it would not have sufficed"
    assert ledger.drop_stored() > 0
    assert cache.nbytes == 0
    assert ledger.drop_stored() == 0


def test_what_a_text_took_over_is_not_asked_for_once_more(llama: MlxLmTarget) -> None:
    row = llama.facts.kv_bytes_per_token
    state = llama.new_state(100)
    mx.eval(llama.forward(state, mx.arange(90), rows=0).logits, state.arrays)
    ledger = MemoryLedger(100 * row, lambda: state.nbytes)
    LaneClaim(ledger, LaneSize(row)).cover(state, 5)
    assert ledger.held["lanes"] == state.nbytes == 100 * row


@pytest.fixture(scope="module")
def llama() -> MlxLmTarget:
    return tiny.target("llama")


def test_a_stored_run_makes_room_for_a_text_that_would_not_fit(
    llama: MlxLmTarget,
) -> None:
    world = World(llama)
    world.run(0, 300)
    assert len(world.cache.runs) == 1
    events = world.run(100, 400)
    assert isinstance(events[-1], Finished)
    assert len(world.cache.runs) == 1, "the earlier one is gone"
    assert [shed.action for shed in world.sheds] == ["states"]
    assert written(events) == written(world.alone(100, 400))


def test_a_text_that_cannot_fit_is_refused_before_it_writes_and_others_go_on(
    llama: MlxLmTarget,
) -> None:
    world = World(llama)
    world.run(200, 100)
    with pytest.raises(ShortageError, match="tokens of context: needs"):
        world.run(0, 480)
    assert len(world.cache.runs) == 1, "it would not have helped"
    assert world.ledger.held["lanes"] == 0
    assert isinstance(world.run(0, 300)[-1], Finished)
    assert world.ledger.held["lanes"] == 0
    assert world.ledger.held["runs"] == world.cache.nbytes


def test_only_what_could_not_be_granted_even_alone_is_refused_beforehand() -> None:
    used = [0]
    ledger = MemoryLedger(BUDGET, lambda: used[0])
    for category, size in (("weights", 400), ("scratch", 100), ("runs", 300)):
        ledger.claim(category, size)
    other = ledger.claim("lanes", 200)
    used[0] = 1100

    def answer(nbytes: int) -> str:
        try:
            ledger.expect(nbytes, "a test")
        except CapacityError as error:
            return error.code
        return ""

    assert [answer(nbytes) for nbytes in (500, 501)] == ["", "E-FIT"]
    other.release()
    assert [answer(nbytes) for nbytes in (500, 501)] == ["", "E-FIT"]
    assert ledger.report().refused == 0
    MemoryLedger().expect(1 << 60, "nobody knows a limit")
