# SPDX-License-Identifier: Apache-2.0
"""How many tokens to draft for every text of a shared cycle.

All texts of a cycle draft the same number. The more texts, the more rows a draft adds,
so the number with the most expected tokens per cost is looked for among those that
keep a pass within its rows; 0 is one of them, so drafting never costs more than it
brings as far as costs are known. They are what cycles of as many texts really took.

Costs are in plain cycles of as many texts. Nothing here changes a text.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from splashpy.drafting.live_costs import PLAIN, Kind, LiveCosts
from splashpy.drafting.pace import Costs

MOST_ROWS = 32
"""Rows of a shared pass at most."""

_PLAIN_FIRST = 2  # cycles that time plain decoding before anything is drafted
_PLAIN_EVERY = 64  # drafting cycles after which plain decoding is timed once more
_FIRST_GAP, _LONGEST_GAP = 8, 64  # plain cycles before drafting is tried again


@dataclass(slots=True)
class _Width:
    """What is known about cycles of one number of texts."""

    costs: LiveCosts
    plain: int = 0
    since_plain: int = 0
    resting: int = 0
    gap: int = _FIRST_GAP


@dataclass(slots=True)
class Widths:
    """Decides for cycles of any number of texts.

    Attributes:
        costs: of cycles of one text on this machine.
    """

    costs: Costs
    _known: dict[int, _Width] = field(default_factory=dict)

    def choose(self, expected: Sequence[Sequence[float]]) -> int:
        """Tokens to draft for every text.

        Args:
            expected: of every text, tokens it would commit with 0, 1, 2 ... drafts.
        """
        texts = len(expected)
        most = min(MOST_ROWS // texts, max(map(len, expected))) - 1
        if most < 1:
            return 0
        known = self._of(texts)
        if self.costs.plain_seconds and (
            known.plain < _PLAIN_FIRST or known.since_plain >= _PLAIN_EVERY
        ):
            return 0
        rates = [
            sum(each[min(count, len(each) - 1)] for each in expected)
            / (known.costs.drafted(count) if count else 1.0)
            for count in range(most + 1)
        ]
        best = max(range(most + 1), key=lambda count: (rates[count], count))
        if best:
            known.resting, known.gap = 0, _FIRST_GAP
            return best
        known.resting += 1
        if known.resting <= known.gap:
            return 0
        known.resting, known.gap = 0, min(2 * known.gap, _LONGEST_GAP)
        return max(range(1, most + 1), key=lambda count: (rates[count], count))

    def note(self, texts: int, drafts: int, seconds: float) -> None:
        """Learn from a cycle that was read ``seconds`` after it began."""
        known = self._of(texts)
        known.plain += not drafts
        known.since_plain = known.since_plain + 1 if drafts else 0
        kind = Kind(drafts + 1, drafter=True) if drafts else PLAIN
        known.costs.note(kind, seconds)

    def _of(self, texts: int) -> _Width:
        if texts not in self._known:
            self._known[texts] = _Width(LiveCosts(self._scaled(texts)))
        return self._known[texts]

    def _scaled(self, texts: int) -> Costs:
        """What cycles of so many texts should cost, from those of one."""
        plain = self.costs.together(texts, 1)
        longest = MOST_ROWS // texts
        passes = tuple(
            (rows, self.costs.together(texts, rows) / plain)
            for rows in range(2, longest + 1)
        )
        draft = texts * self.costs.draft / plain
        return Costs(passes, draft, plain * self.costs.plain_seconds)
