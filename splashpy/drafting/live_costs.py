# SPDX-License-Identifier: Apache-2.0
"""Costs of cycles as they turn out while a model works.

What was timed after loading is a beginning: long contexts make wide passes dearer, and
the machine may have been busy then. The cycles of real answers say more. A kind of
cycle that was seen lately costs what it took on average; any other costs what the
model says, times how far off the model has been on the whole.

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
    """Average cost of a kind, of how many cycles, and when the last one was."""

    mean: float
    count: int = 0
    last: int = 0


class LiveCosts:
    """Costs that follow what cycles take.

    Args:
        model: what was timed after loading. Without a time of a plain step in it
            nothing is learned.
    """

    def __init__(self, model: Costs):
        self.model = model
        self._plain = model.plain_seconds
        self._off = 1.0
        self._cycles = 0
        self._seen: dict[Kind, _Seen] = {}

    def verify(self, rows: int) -> float:
        """Of a cycle that verifies ``rows`` rows without the drafter."""
        return self._cost(Kind(rows))

    def drafted(self, count: int) -> float:
        """Of a cycle in which the drafter drafts ``count`` tokens."""
        return self._cost(Kind(count + 1, drafter=True))

    def note(self, kind: Kind, seconds: float) -> None:
        """Learn from one cycle."""
        if not self._plain:
            return
        if kind == PLAIN:
            self._plain += _MEMORY * (_tame(seconds, self._plain) - self._plain)
            return
        modelled = self._modelled(kind)
        cost = _tame(seconds / self._plain, self._cost(kind))
        self._cycles += 1
        self._off += _DRIFT * (cost / modelled - self._off)
        seen = self._seen.setdefault(kind, _Seen(cost))
        if self._cycles - seen.last > _STALE:
            seen.mean, seen.count = cost, 0
        seen.last = self._cycles
        seen.count += 1
        seen.mean += max(_MEMORY, 1 / seen.count) * (cost - seen.mean)

    def _cost(self, kind: Kind) -> float:
        seen = self._seen.get(kind)
        if seen and seen.count >= _ENOUGH and self._cycles - seen.last <= _STALE:
            return seen.mean
        return self._modelled(kind) * (self._off if kind != PLAIN else 1.0)

    def _modelled(self, kind: Kind) -> float:
        if kind.drafter:
            return self.model.drafted(kind.rows - 1)
        return self.model.verify(kind.rows)


def _tame(value: float, usual: float) -> float:
    return min(max(value, usual / _ODD), usual * _ODD)
