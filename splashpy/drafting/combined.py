# SPDX-License-Identifier: Apache-2.0
"""Lookup where the text repeats itself, the drafter where it pays, else nobody."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from time import perf_counter
from typing import Any

import mlx.core as mx

from splashpy.drafting.drafter import (
    Drafter,
    DraftSampling,
    KeepsContext,
    Proposal,
    empty_proposal,
)
from splashpy.drafting.live_costs import PLAIN, Kind, LiveCosts
from splashpy.drafting.lookup import DRAFT_TOKENS, LookupDrafter, LookupState
from splashpy.drafting.pace import FREE, Costs, Pace, usual_acceptance
from splashpy.models.dflash2_context import DrafterContext


@dataclass(slots=True)
class CombinedState:
    """What is remembered of one sequence.

    Attributes:
        lookup: the lookup's part; None without one.
        drafter: the drafter's part.
        pace: whether and how much to draft.
        answering: the prompt is over; tokens from here on come from cycles.
        cycle: the running one.
        before: the one before it; None before the second of an answer.
        observed_at: when that one ended, by the drafter's clock.
        shared: the running one is not of this text alone.
    """

    lookup: LookupState | None
    drafter: Any
    pace: Pace
    answering: bool = False
    cycle: Kind = PLAIN
    before: Kind | None = None
    observed_at: float = 0.0
    shared: bool = False

    @property
    def arrays(self) -> list[mx.array]:
        """Arrays held by the drafter, for evaluation."""
        return getattr(self.drafter, "arrays", [])


class CombinedDrafter:
    """Takes whichever is expected to commit more in the same time.

    Args:
        lookup: asked first, with what the drafter would achieve as its price; None
            to leave it out.
        drafter: asked when lookup proposes nothing.
        costs: of cycles on this machine, to begin with. ``FREE`` drafts always and
            whole blocks.
        clock: seconds; tells what cycles really take.
    """

    def __init__(
        self,
        lookup: LookupDrafter | None,
        drafter: Drafter,
        costs: Costs = FREE,
        clock: Callable[[], float] = perf_counter,
    ):
        self.lookup, self.drafter = lookup, drafter
        widest = lookup.block_size if lookup else 1
        self.block_size = max(widest, drafter.block_size)
        self.feature_layers = drafter.feature_layers
        self.costs = LiveCosts(costs)
        self._clock = clock
        self._usual = usual_acceptance(drafter.block_size - 1)

    def new_state(self) -> CombinedState:
        """A sequence that has not begun."""
        return CombinedState(
            self.lookup.new_state() if self.lookup else None,
            self.drafter.new_state(),
            Pace(self.costs, self._usual),
        )

    def idle(self, state: CombinedState) -> bool:
        """Whether neither would propose anything now."""
        if self.lookup and state.lookup:
            state.lookup.price = self._price(state)
            if not self.lookup.idle(state.lookup):
                return False
        return state.pace.count(self.drafter.block_size - 1) == 0

    def observe(
        self,
        state: CombinedState,
        token_ids: Sequence[int],
        features: mx.array | None,
        start: int,
    ) -> None:
        """Both take note; a drafter that is not asked queues what it needs."""
        if state.answering:
            self._note(state, len(token_ids))
        if self.lookup and state.lookup:
            self.lookup.observe(state.lookup, token_ids, None, start)
        self.drafter.observe(state.drafter, token_ids, features, start)

    def new_context(self) -> DrafterContext | None:
        """An empty context of the drafter."""
        drafter = self.drafter
        return drafter.new_context() if isinstance(drafter, KeepsContext) else None

    def keep(self, state: CombinedState) -> DrafterContext | None:
        """The drafter's context; lookup needs the tokens only."""
        if isinstance(self.drafter, KeepsContext):
            return self.drafter.keep(state.drafter)
        return None

    def take_up(self, state: CombinedState, context: DrafterContext) -> None:
        """Give the drafter its context."""
        if isinstance(self.drafter, KeepsContext):
            self.drafter.take_up(state.drafter, context)

    def propose(
        self,
        state: CombinedState,
        anchor: mx.array,
        limit: int,
        sampling: DraftSampling,
    ) -> Proposal:
        """Lookup's proposal if it makes one, else as much of the drafter's as pays."""
        state.answering, state.cycle, state.shared = True, PLAIN, False
        self.costs.stand_at(sampling.position)
        found = self._look_up(state, anchor, limit, sampling)
        if len(found):
            return found
        proposal = self._draft(state, anchor, state.pace.count(limit), sampling)
        if state.cycle == PLAIN:
            return proposal
        return replace(proposal, cost=self.costs.drafted(len(proposal)))

    def expected(self, state: CombinedState) -> list[float]:
        """See :class:`~splashpy.drafting.drafter.SharesCycles`."""
        drafted = state.pace.expected
        if not self.lookup or not state.lookup:
            return drafted
        found = self.lookup.expected(state.lookup)
        return max(drafted, found, key=lambda tokens: tokens[-1] / len(tokens))

    def propose_shared(
        self,
        state: CombinedState,
        anchor: mx.array,
        limit: int,
        sampling: DraftSampling,
    ) -> Proposal:
        """Lookup's proposal where it promises more, else the drafter's."""
        state.answering, state.cycle, state.shared = True, PLAIN, True
        if self.lookup and state.lookup:
            tokens = self.lookup.expected(state.lookup)
            if tokens[-1] > state.pace.expected[: len(tokens)][-1]:
                found = self.lookup.propose_shared(
                    state.lookup, anchor, limit, sampling
                )
                if len(found):
                    return found
        return self._draft(state, anchor, limit, sampling)

    def _draft(
        self,
        state: CombinedState,
        anchor: mx.array,
        count: int,
        sampling: DraftSampling,
    ) -> Proposal:
        if count < 1:
            return empty_proposal()
        proposal = self.drafter.propose(state.drafter, anchor, count, sampling)
        # Its pass takes time even if a grammar leaves nothing of what it drafts.
        state.cycle = Kind(len(proposal) + 1, drafter=True)
        return proposal

    def _look_up(
        self,
        state: CombinedState,
        anchor: mx.array,
        limit: int,
        sampling: DraftSampling,
    ) -> Proposal:
        if not self.lookup or not state.lookup:
            return empty_proposal()
        state.lookup.price = self._price(state)
        room = limit if self.lookup.always else self._affordable(state, limit)
        found = self.lookup.propose(state.lookup, anchor, room, sampling)
        state.cycle = Kind(len(found) + 1)
        return replace(found, cost=self.costs.verify(state.cycle.rows))

    def _affordable(self, state: CombinedState, limit: int) -> int:
        """Tokens a lookup may draft: a long copy is begun with as many as there may be.

        It would never be, if it had to be afforded whole: while none is drafted, the
        match only grows.
        """
        room = min(limit, self.block_size - 1)
        while room > 0 and not state.pace.affords(self.costs.verify(room + 1)):
            room -= 1
        return room

    def _note(self, state: CombinedState, committed: int) -> None:
        """Count the cycle that ends now, and what it took since the one before."""
        if state.shared:
            if state.cycle.drafter:
                state.pace.learn(state.cycle.rows - 1, committed - 1)
            state.before = None
            return
        cycle, before, now = state.cycle, state.before, self._clock()
        # A plain step is quicker after another one, which is how they run in a pause.
        if before is not None and (cycle != PLAIN or before == PLAIN):
            self.costs.note(cycle, now - state.observed_at)
        state.before, state.observed_at = cycle, now
        if cycle.drafter:
            state.pace.note_drafted(cycle.rows - 1, committed)
        else:
            state.pace.note(self.costs.verify(cycle.rows), committed)
        state.cycle = PLAIN

    def _price(self, state: CombinedState) -> float:
        """Tokens the drafter would commit in the time of a usual lookup.

        A lookup that is wished whatever it takes counts as one plain step.
        """
        wished = self.lookup is not None and self.lookup.always
        cost = 1.0 if wished else self.costs.verify(DRAFT_TOKENS + 1)
        return cost * state.pace.rate
