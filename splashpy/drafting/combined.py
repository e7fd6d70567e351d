# SPDX-License-Identifier: Apache-2.0
"""Lookup where the text repeats itself, the drafter everywhere else."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import mlx.core as mx

from splashpy.drafting.drafter import Drafter, DraftSampling, Proposal
from splashpy.drafting.lookup import LookupDrafter, LookupState


@dataclass(slots=True)
class CombinedState:
    """What both remember of one sequence."""

    lookup: LookupState
    drafter: Any

    @property
    def arrays(self) -> list[mx.array]:
        """Arrays held by the drafter, for evaluation."""
        return getattr(self.drafter, "arrays", [])


class CombinedDrafter:
    """Asks lookup first; a cycle that drafts by lookup costs the drafter nothing.

    Args:
        lookup: tried first in every cycle.
        drafter: asked when lookup proposes nothing.
    """

    needs_tokens = True

    def __init__(self, lookup: LookupDrafter, drafter: Drafter):
        self._lookup, self._drafter = lookup, drafter
        self.block_size = max(lookup.block_size, drafter.block_size)
        self.feature_layers = drafter.feature_layers

    def new_state(self) -> CombinedState:
        """A sequence that has not begun."""
        return CombinedState(self._lookup.new_state(), self._drafter.new_state())

    def observe(
        self,
        state: CombinedState,
        token_ids: Sequence[int],
        features: mx.array | None,
        start: int,
    ) -> None:
        """Both take note; a drafter that is not asked queues what it needs."""
        self._lookup.observe(state.lookup, token_ids, None, start)
        self._drafter.observe(state.drafter, token_ids, features, start)

    def propose(
        self,
        state: CombinedState,
        anchor: mx.array,
        limit: int,
        sampling: DraftSampling,
    ) -> Proposal:
        """Lookup's proposal if it makes one, else the drafter's."""
        found = self._lookup.propose(state.lookup, anchor, limit, sampling)
        if len(found):
            return found
        return self._drafter.propose(state.drafter, anchor, limit, sampling)
