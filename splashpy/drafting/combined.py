# SPDX-License-Identifier: Apache-2.0
"""Lookup where the text repeats itself, the drafter where it pays, else nobody."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import mlx.core as mx

from splashpy.drafting.drafter import (
    Drafter,
    DraftSampling,
    KeepsContext,
    Proposal,
    empty_proposal,
)
from splashpy.drafting.lookup import LookupDrafter, LookupState
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
        drafted: tokens of the running cycle that the drafter proposed.
        cost: of the running cycle where the drafter proposed none.
    """

    lookup: LookupState | None
    drafter: Any
    pace: Pace
    answering: bool = False
    drafted: int = 0
    cost: float = 1.0

    @property
    def arrays(self) -> list[mx.array]:
        """Arrays held by the drafter, for evaluation."""
        return getattr(self.drafter, "arrays", [])


class CombinedDrafter:
    """Asks lookup first; a cycle without the drafter costs it next to nothing.

    Args:
        lookup: tried first in every cycle; None to leave it out.
        drafter: asked when lookup proposes nothing.
        costs: of cycles on this machine. ``FREE`` drafts always and whole blocks.
    """

    def __init__(
        self, lookup: LookupDrafter | None, drafter: Drafter, costs: Costs = FREE
    ):
        self.lookup, self.drafter = lookup, drafter
        widest = lookup.block_size if lookup else 1
        self.block_size = max(widest, drafter.block_size)
        self.feature_layers = drafter.feature_layers
        self.costs = costs
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
        if self.lookup and state.lookup and not self.lookup.idle(state.lookup):
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
        if state.answering and state.drafted:
            state.pace.note_drafted(state.drafted, len(token_ids))
        elif state.answering:
            state.pace.note(state.cost, len(token_ids))
        state.drafted, state.cost = 0, 1.0
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
        state.answering = True
        state.drafted, state.cost = 0, 1.0
        found = self._look_up(state, anchor, limit, sampling)
        if len(found):
            return found
        count = state.pace.count(limit)
        if count < 1:
            return empty_proposal()
        proposal = self.drafter.propose(state.drafter, anchor, count, sampling)
        state.drafted = len(proposal)
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
        found = self.lookup.propose(state.lookup, anchor, limit, sampling)
        cost = self.costs.verify(len(found) + 1)
        if self.lookup.always or state.pace.affords(cost):
            state.cost = cost
            return found
        state.lookup.drafted = 0
        return empty_proposal()
