# SPDX-License-Identifier: Apache-2.0
"""Raw counts of speculation; whoever shows them computes rates."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from splashpy.protocol import Kind, Spec


@dataclass(slots=True)
class SpecCounts:
    """What the cycles of one request did.

    Attributes:
        cycles: verify passes.
        drafted: tokens proposed.
        accepted: proposed tokens that were committed.
        looked_up: those of them that prompt lookup proposed.
        committed: tokens produced after the prefill token.
        hist: hist[n - 1] counts the cycles that committed n tokens.
        drafted_per_position: cycles that proposed a token at draft position i + 1.
        accepted_per_position: cycles that committed it.
        decided: cycles by who drafted; ``t`` where nobody did.
        saved: plain steps saved by cycles that committed more tokens than they cost.
        regret: plain steps lost by cycles that committed fewer.
    """

    cycles: int = 0
    drafted: int = 0
    accepted: int = 0
    looked_up: int = 0
    committed: int = 0
    hist: list[int] = field(default_factory=list)
    drafted_per_position: list[int] = field(default_factory=list)
    accepted_per_position: list[int] = field(default_factory=list)
    decided: Counter[Kind] = field(default_factory=Counter)
    saved: float = 0.0
    regret: float = 0.0

    def note(
        self,
        *,
        drafted: int,
        accepted: int,
        committed: int,
        by: Kind = "t",
        cost: float = 1.0,
    ) -> None:
        """Count one cycle that was expected to take ``cost`` plain steps."""
        self.cycles += 1
        self.decided[by] += 1
        self.saved += max(committed - cost, 0.0)
        self.regret += max(cost - committed, 0.0)
        self.drafted += drafted
        self.accepted += accepted
        self.committed += committed
        if committed:  # none when a stop string ended before this cycle's tokens
            _count_at(self.hist, committed - 1)
        for position in range(drafted):
            _count_at(self.drafted_per_position, position)
            _count_at(self.accepted_per_position, position, position < accepted)

    @property
    def tau(self) -> float:
        """Acceptance length: tokens per verify pass, the target's own one counted.

        0 when there was no pass.
        """
        return self.committed / self.cycles if self.cycles else 0.0

    def to_spec(self) -> Spec:
        """The counts as an event carries them."""
        return Spec(
            cycles=self.cycles,
            drafted=self.drafted,
            accepted=self.accepted,
            looked_up=self.looked_up,
            tau=self.tau,
            hist=tuple(self.hist),
            accepted_per_position=tuple(self.accepted_per_position),
            drafted_per_position=tuple(self.drafted_per_position),
            plain_cycles=self.decided["t"],
            drafter_cycles=self.decided["a"],
            lookup_cycles=self.decided["l"],
            saved=round(self.saved, 3),
            regret=round(self.regret, 3),
        )


def _count_at(counts: list[int], index: int, amount: int = 1) -> None:
    counts.extend([0] * (index + 1 - len(counts)))
    counts[index] += amount
