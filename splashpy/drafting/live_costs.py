# SPDX-License-Identifier: Apache-2.0
"""Costs of cycles as they turn out while a model works.

What was timed after loading is a beginning: the machine may have been busy then, and
heat and power change it. The cycles of real answers say more. The model tells what a
kind of cycle costs at the length of the text; one that was seen lately is off by as
much as it was on average, any other by as much as the model has been on the whole.

Costs are in plain steps, which are timed in the same way. No decision here can change
a text.
"""

from __future__ import annotations

from dataclasses import dataclass

from splashpy.drafting.pace import Costs

_MEMORY = 0.1  # weight of the newest cycle of a kind, and of the newest plain step
_DRIFT = 0.05  # weight of the newest cycle in what the model is off by
_ENOUGH = 4  # cycles of a kind that outweigh the model
_STALE = 32  # drafting cycles after which a kind says nothing any more
_DEPTH_STEP = 256  # tokens of context that make a difference
_ODD = 2.0  # a cycle that took longer by more counts as this much longer: a hiccup


@dataclass(frozen=True, slots=True)
class Kind:
    """Cycles that cost the same.

    Attributes:
        rows: of the verify pass; 1 is a plain step.
        drafter: whether the drafter took part.
    """

    rows: int
    drafter: bool = False


PLAIN = Kind(1)


@dataclass(slots=True)
class _Seen:
    """How far off the model is for a kind, in how many cycles, and the last of them."""

    factor: float
    count: int = 0
    last: int = 0


class LiveCosts:
    """Costs that follow what cycles take.

    Args:
        model: what was timed after loading. Without a time of a plain step in it
            nothing is learned.
    """

    def __init__(self, model: Costs):
        self.model = self._here = model
        self._depth = 0
        self._slower = 1.0  # plain steps, than the model says
        self._off = 1.0
        self._cycles = 0
        self._seen: dict[Kind, _Seen] = {}

    def stand_at(self, context: int) -> None:
        """The next cycle is of a text of so many tokens."""
        depth = context // _DEPTH_STEP * _DEPTH_STEP
        if depth != self._depth:
            self._depth, self._here = depth, self.model.at(depth)

    def verify(self, rows: int) -> float:
        """Of a cycle that verifies ``rows`` rows without the drafter."""
        return self._cost(Kind(rows))

    def drafted(self, count: int) -> float:
        """Of a cycle in which the drafter drafts ``count`` tokens."""
        return self._cost(Kind(count + 1, drafter=True))

    def note(self, kind: Kind, seconds: float) -> None:
        """Learn from one cycle."""
        plain = self._here.plain_seconds
        if not plain:
            return
        if kind == PLAIN:
            slower = _tame(seconds / plain, self._slower)
            self._slower += _MEMORY * (slower - self._slower)
            return
        found = seconds / (plain * self._slower * self._modelled(kind))
        factor = _tame(found, self._factor(kind))
        self._cycles += 1
        self._off += _DRIFT * (factor - self._off)
        seen = self._seen.setdefault(kind, _Seen(factor))
        if self._cycles - seen.last > _STALE:
            seen.factor, seen.count = factor, 0
        seen.last = self._cycles
        seen.count += 1
        seen.factor += max(_MEMORY, 1 / seen.count) * (factor - seen.factor)

    def _cost(self, kind: Kind) -> float:
        return self._modelled(kind) * self._factor(kind)

    def _factor(self, kind: Kind) -> float:
        """How far off the model is."""
        seen = self._seen.get(kind)
        if seen and seen.count >= _ENOUGH and self._cycles - seen.last <= _STALE:
            return seen.factor
        return self._off if kind != PLAIN else 1.0

    def _modelled(self, kind: Kind) -> float:
        if kind.drafter:
            return self._here.drafted(kind.rows - 1)
        return self._here.verify(kind.rows)


def _tame(value: float, usual: float) -> float:
    return min(max(value, usual / _ODD), usual * _ODD)
