# SPDX-License-Identifier: Apache-2.0
"""The state of one finished request with the tokens its rows belong to.

Its rows do not change while it is stored. It serves every prompt that begins as its
tokens do, up to the nearest row its state can come back to.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from splashpy.cache.chain import Tokens
from splashpy.cache.plan import Kind, outranks
from splashpy.models.dflash2_context import DrafterContext
from splashpy.models.state import TargetState


@dataclass(slots=True)
class Place:
    """One place of a run that is worth coming back to.

    Attributes:
        kind: why.
        used: when it was last planned, kept or resumed at, in lookups.
        reused: a later prompt was resumed here.
        draft: the drafter's context there; None where it is cut from the run's own.
    """

    kind: Kind
    used: int
    reused: bool = False
    draft: DrafterContext | None = None


@dataclass(slots=True, eq=False)
class StoredRun:
    """A stored sequence.

    Attributes:
        tokens: one per row of the state.
        hashes: of its full blocks.
        state: of the target.
        draft: the drafter's context at the end; None without one.
        places: by the number of rows before them.
        lost: places whose checkpoint was given up.
        used: when it was last stored or resumed, in lookups.
        asked: somebody read this prompt ahead of time.
    """

    tokens: Tokens
    hashes: list[bytes]
    state: TargetState
    draft: DrafterContext | None = None
    places: dict[int, Place] = field(default_factory=dict)
    lost: set[int] = field(default_factory=set)
    used: int = 0
    asked: bool = False

    def __len__(self) -> int:
        return len(self.tokens)

    def held(self) -> dict[int, int]:
        """Bytes of everything held, by identity: runs may share checkpoints."""
        held = dict(self.state.held)
        for context in self._contexts():
            held |= {id(array): array.nbytes for array in context.arrays}
        held[id(self.tokens)] = self.tokens.itemsize * len(self.tokens)
        return held

    def note(self, place: int, kind: Kind, now: int) -> Place:
        """Note a place, or that it is still of use."""
        found = self.places.get(place)
        if found is None:
            found = self.places[place] = Place(kind, now)
        elif outranks(kind, found.kind):
            found.kind = kind
        found.used = now
        return found

    def give_up(self, place: int) -> None:
        """Free the checkpoint at a place."""
        self.state.forget(place)
        self.places.pop(place, None)
        self.lost.add(place)

    def absorb(self, other: StoredRun) -> None:
        """Take up the places of a run that begins with, or equals, these tokens."""
        self.state.adopt(other.state)
        for place, theirs in other.places.items():
            ours = self.places.setdefault(place, theirs)
            ours.used = max(ours.used, theirs.used)
            ours.reused |= theirs.reused
            ours.draft = ours.draft or theirs.draft
        self.lost |= other.lost
        self.lost -= set(self.places)
        self.asked |= other.asked
        if len(other) == len(self) and self.draft is None:
            self.draft = other.draft

    def draft_at(self, place: int) -> DrafterContext | None:
        """The drafter's context for a sequence resumed at a place, not yet cut."""
        kept = self.places.get(place)
        return kept.draft if kept and kept.draft is not None else self.draft

    def _contexts(self) -> Iterator[DrafterContext]:
        if self.draft is not None:
            yield self.draft
        for place in self.places.values():
            if place.draft is not None:
                yield place.draft
