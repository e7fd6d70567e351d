# SPDX-License-Identifier: Apache-2.0
"""No drafter: every cycle is one plain step of the target."""

from __future__ import annotations

from collections.abc import Sequence

import mlx.core as mx

from splashpy.drafting.drafter import DraftSampling, Proposal, empty_proposal


class PlainDrafter:
    """Proposes nothing, so the loop may keep one token in flight."""

    block_size = 1
    feature_layers: tuple[int, ...] = ()

    def new_state(self) -> None:
        """Nothing to remember."""

    def idle(self, state: None) -> bool:
        """Always."""
        return True

    def observe(
        self,
        state: None,
        token_ids: Sequence[int],
        features: mx.array | None,
        start: int,
    ) -> None:
        """Nothing to note."""

    def propose(
        self, state: None, anchor: mx.array, limit: int, sampling: DraftSampling
    ) -> Proposal:
        """No token."""
        return empty_proposal()
