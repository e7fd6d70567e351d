# SPDX-License-Identifier: Apache-2.0
"""How much to draft, so that drafting pays.

A cycle that drafts n tokens costs more than a plain step and commits 1 to n + 1 tokens.
The draft length with the most expected tokens per cost is chosen; where even that one
commits less than plain steps would in the same time, drafting rests for some tokens
and then tries again, with growing gaps.

An estimate can be wrong, so there is an account beside it: tokens committed minus plain
steps paid. A cycle that could overdraw it is not made. The credit is a small grant and
a small share of the tokens written, so however badly a text is drafted, it takes
little longer than plain decoding; the costs must be those of the machine.

Nothing here changes a text, and nothing here knows arrays. Costs are in plain steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Protocol

GRANT = 0.75  # plain steps a new text may lose before it has written anything
# Of which only lookup may lose: its matches are judged before they cost anything. A
# drafter that fails at once slows an answer of ten tokens by 5 %.
RESERVE = 0.3
SHARE = 0.02  # plain steps it may lose for every token written
FIRST_GAP = 8  # tokens without drafts before the first new try
LONGEST_GAP = 64
_UNKNOWN = 0.5  # chance of a draft before anything is known
_PRIOR_CYCLES = 4.0  # cycles of its own that outweigh what a request starts with
_REQUEST_MEMORY = 0.9  # weight of earlier cycles after one more: about ten count
_ENGINE_MEMORY = 0.98  # about fifty


@dataclass(frozen=True, slots=True)
class Costs:
    """What cycles cost.

    Attributes:
        passes: (rows, cost) of the verify passes that were measured, ascending. Other
            widths lie on lines between them; without any, every pass costs one.
        draft: of the drafter's own pass.
        plain_seconds: what a plain step took; 0 where nothing was timed.
        depths: (rows, what a pass costs more for every token of context), ascending;
            one row is a plain step. Everything else is of short texts.
        shared: (texts, rows, cost) of passes with so many rows of each of some texts.
    """

    passes: tuple[tuple[int, float], ...] = ()
    draft: float = 0.0
    plain_seconds: float = 0.0
    depths: tuple[tuple[int, float], ...] = ()
    shared: tuple[tuple[int, int, float], ...] = ()

    def verify(self, rows: int) -> float:
        """Of a verify pass."""
        if not self.passes:
            return 1.0
        points = ((1, 1.0), *(each for each in self.passes if each[0] > 1))
        widest, cost = points[-1]
        if rows > widest:
            return 1.0 + (rows - 1) * (cost - 1.0) / max(widest - 1, 1)
        return _between(points, rows)

    def drafted(self, count: int) -> float:
        """Of a cycle in which the drafter drafts ``count`` tokens."""
        return self.verify(count + 1) + self.draft

    def at(self, context: int) -> Costs:
        """Costs in plain steps of a text of ``context`` tokens, which take longer."""
        if not context or len(self.depths) < 2:
            return self
        plain = 1.0 + context * _between(self.depths, 1)
        passes = (
            (rows, max((cost + context * _between(self.depths, rows)) / plain, 1.0))
            for rows, cost in self.passes
        )
        return replace(
            self,
            passes=tuple(passes),
            draft=self.draft / plain,
            plain_seconds=self.plain_seconds * plain,
            depths=(),
        )

    def together(self, texts: int, rows: int) -> float:
        """Of a pass with ``rows`` rows of each of some texts."""
        cost = self.verify(texts * rows)
        nearest = max((n for n, _, _ in self.shared if n <= texts), default=0)
        points = [
            (count, measured / self.verify(nearest * count))
            for n, count, measured in self.shared
            if n == nearest
        ]
        return cost * _between(points, rows) if points else cost


def _between(points: Sequence[tuple[int, float]], place: int) -> float:
    """The value on the lines between ascending points; outside, of the nearest."""
    if place <= points[0][0]:
        return points[0][1]
    for (left, low), (right, high) in pairwise(points):
        if place <= right:
            return low + (place - left) * (high - low) / (right - left)
    return points[-1][1]


class Prices(Protocol):
    """What cycles cost now."""

    def verify(self, rows: int) -> float:
        """Of a verify pass."""
        ...

    def drafted(self, count: int) -> float:
        """Of a cycle in which the drafter drafts ``count`` tokens."""
        ...


FREE = Costs()
"""No cycle costs more than a plain step: with these, everything is always drafted."""


class Acceptance:
    """How likely the draft in every slot is right if all before it are.

    Args:
        prior: chances of the slots before any cycle.
        memory: weight of earlier cycles after one more.
    """

    def __init__(self, prior: Sequence[float], memory: float):
        self._prior = tuple(prior)
        self._memory = memory
        self._kept = [0.0] * len(prior)
        self._tried = [0.0] * len(prior)

    @property
    def chances(self) -> list[float]:
        """Of every slot.

        A slot that was hardly tried is expected to do better or worse than before as
        the slot ahead of it does: what is never drafted could not show that it pays.
        """
        found: list[float] = []
        trend = 1.0
        counts = zip(self._prior, self._kept, self._tried, strict=True)
        for prior, kept, tried in counts:
            guess = min(prior * trend, 1.0)
            chance = (kept + _PRIOR_CYCLES * guess) / (tried + _PRIOR_CYCLES)
            found.append(chance)
            trend = chance / prior if prior else 1.0
        return found

    def expected(self) -> list[float]:
        """Tokens a cycle commits with 0, 1, 2 ... drafts, the target's own counted."""
        tokens, right = [1.0], 1.0
        for chance in self.chances:
            right *= chance
            tokens.append(tokens[-1] + right)
        return tokens

    def note(self, drafted: int, accepted: int) -> None:
        """Count one cycle; slots after the first wrong draft were not tried.

        Where a grammar left nothing of a draft, its first token was wrong.
        """
        self._kept = [self._memory * each for each in self._kept]
        self._tried = [self._memory * each for each in self._tried]
        for slot in range(min(max(drafted, 1), accepted + 1)):
            self._tried[slot] += 1
            self._kept[slot] += slot < accepted


class Pace:
    """Decides for one sequence.

    Args:
        costs: of this machine.
        usual: how drafts fared in all requests so far; takes part in this one.
    """

    def __init__(self, costs: Prices, usual: Acceptance):
        self._costs = costs
        self._usual = usual
        self._own = Acceptance(usual.chances, _REQUEST_MEMORY)
        self._credit = GRANT
        self._gap = FIRST_GAP
        self._rest = 0
        self._most = len(usual.chances)
        self._judge()

    @property
    def rate(self) -> float:
        """Tokens per plain step to expect of the cycles it would choose now."""
        return 1.0 if self._rest > 0 else max(self._best(self._most)[1], 1.0)

    @property
    def expected(self) -> list[float]:
        """Tokens a cycle commits with 0, 1, 2 ... drafts."""
        return self._own.expected()

    def learn(self, drafted: int, accepted: int) -> None:
        """Note how drafts fared whose cost was not this text's own."""
        for estimate in (self._own, self._usual):
            estimate.note(drafted, accepted)

    def affords(self, cost: float) -> bool:
        """Whether a cycle may cost this much, even if it commits one token only."""
        return cost - 1.0 <= self._credit

    def count(self, limit: int) -> int:
        """Tokens the drafter is to draft now; 0 makes a plain step."""
        most = min(limit, self._most)
        if most < 1 or self._rest > 0:
            return 0
        count, rate = self._best(most)
        if rate < 1.0 and most < self._most:  # too few are left to pay; not a new try
            return 0
        while count and not self.affords(self._costs.drafted(count) + RESERVE):
            count -= 1  # fewer drafts cost less
        return count

    def note(self, cost: float, committed: int) -> None:
        """Count a cycle the drafter had no part in."""
        self._credit += committed - cost + SHARE * committed
        self._rest = max(self._rest - committed, 0)

    def note_drafted(self, drafted: int, committed: int) -> None:
        """Count a cycle with ``drafted`` tokens of the drafter."""
        cost = self._costs.drafted(drafted)
        self.note(cost, committed)
        for estimate in (self._own, self._usual):
            estimate.note(drafted, committed - 1)
        self._judge(paid=committed >= cost)

    def _judge(self, *, paid: bool = False) -> None:
        """Go on, or rest: twice as long as the last time."""
        if paid or self._best(self._most)[1] >= 1.0:
            self._rest, self._gap = 0, FIRST_GAP
            return
        self._rest = self._gap
        self._gap = min(2 * self._gap, LONGEST_GAP)

    def _best(self, most: int) -> tuple[int, float]:
        """The best of 1 to ``most`` drafts, and its tokens per plain step."""
        expected = self._own.expected()
        rates = {n: expected[n] / self._costs.drafted(n) for n in range(1, most + 1)}
        count = max(rates, key=lambda n: (rates[n], n))
        return count, rates[count]


def usual_acceptance(slots: int) -> Acceptance:
    """What an engine knows before its first request."""
    return Acceptance([_UNKNOWN] * slots, _ENGINE_MEMORY)
