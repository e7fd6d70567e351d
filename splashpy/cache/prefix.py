# SPDX-License-Identifier: Apache-2.0
"""State of earlier requests, found by token ids.

A prompt that begins as a stored sequence does takes its state over without a copy,
shortened to where it departs; where that would throw much away, it gets copies of the
rows instead. A state with windows or recurrent layers is resumed at the nearest place
that was kept. Token ids decide, nothing else.

Belongs to the engine's thread.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import mlx.core as mx

from splashpy.cache.chain import DIGEST_BYTES, Tokens, block_hashes, pack
from splashpy.cache.disk.tier import TOLD, DiskTier
from splashpy.cache.eviction import next_victim, stored_bytes
from splashpy.cache.index import BlockIndex
from splashpy.cache.lookup import Lookup, Reason
from splashpy.cache.plan import Kind, Policy
from splashpy.cache.room import BOUNDLESS, Room
from splashpy.cache.stored_run import Place, StoredRun
from splashpy.models.dflash2_context import DrafterContext
from splashpy.models.state import TargetState

_WORTH_READING = 256  # tokens more than memory has, for the disk to be read


@dataclass(frozen=True, slots=True)
class Taken:
    """What a prompt begins with.

    Attributes:
        found: what the lookup came to.
        state: holds the first ``found.resumed`` tokens and belongs to whoever took it;
            None where nothing was restored.
        draft: the drafter's context for them, which may be missing or short.
        places: of those tokens, for :meth:`PrefixCache.insert`.
    """

    found: Lookup
    state: TargetState | None = None
    draft: DrafterContext | None = None
    places: dict[int, Place] = field(default_factory=dict)


class PrefixCache:
    """Stored runs within a budget.

    Args:
        budget: bytes of all runs; the newest one stays whatever it takes. Without a
            number there is no limit.
        root: digest of the namespace.
        policy: which places are kept.
        disk: where runs survive a restart; None keeps them in memory only.
        new_state: an empty state with room for some rows; needed with ``disk``.

    Attributes:
        ceiling: bytes of all runs at most while the computer has no more memory.
        fits: whether there is memory for copies of so many bytes on their way to disk
            or back, while no pass computes.
    """

    def __init__(
        self,
        budget: int = sys.maxsize,
        *,
        root: bytes = bytes(DIGEST_BYTES),
        policy: Policy | None = None,
        disk: DiskTier | None = None,
        new_state: Callable[[int], TargetState] | None = None,
    ) -> None:
        self.budget = budget
        self.policy = policy or Policy()
        self.ceiling = sys.maxsize
        self.fits: Callable[[int], bool] = lambda _: True
        self._index = BlockIndex(root)
        self._disk, self._new_state = disk, new_state
        self._now = 0

    @property
    def runs(self) -> list[StoredRun]:
        """What is stored, in the order it was."""
        return self._index.runs

    @property
    def _most(self) -> int:
        return min(self.budget, self.ceiling)

    @property
    def num_tokens(self) -> int:
        """Rows stored."""
        return sum(map(len, self.runs))

    @property
    def nbytes(self) -> int:
        """Bytes stored: rows, recurrent states, windows and drafter contexts."""
        return stored_bytes(self._index.runs)

    @property
    def kept(self) -> dict[int, int]:
        """Of those, the places that rows alone cannot come back to, by identity."""
        kept: dict[int, int] = {}
        for run in self.runs:
            kept |= run.state.kept
        return kept

    @property
    def kept_nbytes(self) -> int:
        """Their bytes."""
        return sum(self.kept.values())

    @property
    def staged_bytes(self) -> int:
        """Bytes of copies on their way to disk."""
        return 0 if self._disk is None else self._disk.staged_bytes

    def take(
        self, token_ids: Sequence[int], capacity: int = 0, room: Room = BOUNDLESS
    ) -> Taken:
        """Look a prompt up and hand over what it begins with.

        At least one token is left to compute: a state holds no logits.

        Args:
            token_ids: the prompt.
            capacity: rows its sequence is expected to have.
            room: for copies of rows; what is restored from disk is claimed of it.

        Raises:
            ShortageError: ``room`` has none for the rows that could be restored.
        """
        self._now += 1
        tokens = pack(token_ids)
        run, found = self._look_up(tokens)
        if self._disk is not None:
            self._disk.abandon()  # the runs are about to change
        if self._disk is not None and found.reason != "whole":
            taken = self._from_disk(tokens, found, capacity, room)
            if taken.state is not None:
                return taken
            # What memory has may have made room for what then was not restored.
            run, left = self._look_up(tokens)
            found = replace(taken.found, resumed=left.resumed, tier=left.tier)
        if run is None:
            return Taken(found)
        length, run.used = found.resumed, self._now
        if length in run.places:
            run.note(length, run.places[length].kind, self._now).reused = True
        apart = len(run) - length >= self.policy.copied
        if apart and self._in_budget(run, length) and room.fits(max(capacity, length)):
            return self._branched(run, found, capacity)
        return self._taken_over(run, found)

    def look_up(self, token_ids: Sequence[int]) -> Lookup:
        """What memory has for a prompt; changes nothing."""
        return self._look_up(pack(token_ids))[1]

    def insert(
        self,
        token_ids: Sequence[int],
        state: TargetState,
        *,
        draft: DrafterContext | None = None,
        places: Mapping[int, Place] | None = None,
        asked: bool = False,
    ) -> None:
        """Keep a state, which from now on nobody else may change.

        Args:
            token_ids: one per row of ``state``.
            state: of a finished request.
            draft: the drafter's context at its end; also given up.
            places: of these tokens.
            asked: the prompt was read ahead of time.

        Raises:
            ValueError: the state holds another number of rows.
        """
        if state.length != len(token_ids):
            raise ValueError(
                f"{len(token_ids)} tokens do not describe {state.length} rows"
            )
        if len(token_ids) < self.policy.shortest:
            return
        tokens = pack(token_ids)
        hashes = list(block_hashes(self._index.root, tokens))
        run = StoredRun(tokens, hashes, state, draft, dict(places or {}), asked=asked)
        self._end(run)
        run = self._merged(run)
        run.used = self._now
        self._index.add(run)
        self._shrink(run)
        if self._disk is not None:
            runs = self._index.runs
            for each in (run, *self._disk.unfinished()):
                if each in runs:
                    self._disk.offer(each)

    def write_some(self) -> bool:
        """Bring a little of what is stored to disk; True while there is more."""
        return self._disk is not None and self._disk.step(self.fits)

    @property
    def behind(self) -> bool:
        """Whether the disk takes longer than copying does."""
        return self._disk is not None and self._disk.behind

    def settle(self, timeout: float | None = None) -> bool:
        """Wait until what was brought to disk is there; False when it took longer."""
        return self._disk is None or self._disk.settle(timeout)

    def close(self, timeout: float | None = None) -> None:
        """Forget everything in memory and let go of the disk."""
        self.clear()
        if self._disk is not None:
            self._disk.close(timeout)

    def place(self, kind: Kind, draft: DrafterContext | None = None) -> Place:
        """A place noted now."""
        return Place(kind, self._now, draft=draft)

    def clear(self) -> None:
        """Forget everything."""
        for run in self._index.runs:
            self._remove(run)

    def shrink(self, most: int) -> None:
        """Give up what was used longest ago until ``most`` bytes are left.

        The newest run goes last, and only where nothing may be left.
        """
        while self._index.runs and self.nbytes > most:
            newest = max(self._index.runs, key=lambda run: run.used)
            victim = next_victim(self._index.runs, newest)
            if victim is None:
                if most <= 0:
                    self.clear()
                return
            if victim.place is None:
                self._remove(victim.run)
            else:
                victim.run.give_up(victim.place)

    def _remove(self, run: StoredRun) -> None:
        """Forget a run; nobody else may hold on to its rows."""
        self._index.remove(run)
        if self._disk is not None:
            self._disk.leave(run)

    def _look_up(self, tokens: Tokens) -> tuple[StoredRun | None, Lookup]:
        limit = len(tokens) - 1
        best: StoredRun | None = None
        resumed = shared = 0
        was: tuple[int, ...] = ()
        lost = False
        for run, common in self._index.matches(tokens):
            if common > shared:
                shared, was = common, tuple(run.tokens[common : common + TOLD])
            if common <= resumed:
                break
            length = run.state.nearest(min(common, limit))
            if length > resumed:
                best, resumed = run, length
            lost |= any(length < place <= common for place in run.lost)
            if resumed == min(common, limit):
                break
        if resumed < self.policy.shortest:
            best, resumed = None, 0
        found = Lookup(
            length=len(tokens),
            shared=shared,
            resumed=resumed,
            tier="ram" if best else "",
            was=was,
        )
        return best, self._explained(found, lost=lost)

    def _from_disk(
        self, tokens: Tokens, found: Lookup, capacity: int, room: Room
    ) -> Taken:
        """What the disk has, where that is more than memory has."""
        assert self._disk is not None
        assert self._new_state is not None
        cut_anywhere = self._new_state(0).cut_anywhere
        shared, places = self._disk.find(tokens, cut_anywhere=cut_anywhere)
        # Even where no whole block is shared, the first ones on disk tell how far.
        if (shared > found.shared or not found.shared) and shared < len(tokens):
            shared, was = self._disk.departure(tokens, shared)
            found = replace(found, shared=shared, was=was)
        least = max(found.resumed + _WORTH_READING, self.policy.shortest)
        bad = self._disk.bad_records
        for place in places:
            if place.position < least:
                break
            state = self._empty(capacity, place.rows, room)
            if not self.fits(place.staged_bytes):
                break
            restored = self._disk.restore(place, tokens, state)
            found = replace(found, damaged=self._disk.bad_records - bad)
            if restored is not None:
                at = place.position
                found = replace(found, resumed=at, tier="disk")
                found = self._explained(found, lost=False)
                kept = Place("stable", self._now, reused=True, draft=None)
                return Taken(found, restored.state, restored.draft, {at: kept})
        return Taken(self._explained(found, lost=found.reason == "lost"))

    def _empty(self, rows: int, least: int, room: Room) -> TargetState:
        """A state that has room for so many rows, or where memory is short for fewer.

        Raises:
            ShortageError: there is none for ``least`` rows.
        """
        assert self._new_state is not None
        state = self._new_state(rows if room.make_room(max(rows, least)) else least)
        room.cover(state, least)
        return state

    def _explained(self, found: Lookup, *, lost: bool) -> Lookup:
        """The lookup with the reason why it did not come to more."""
        reachable = min(found.shared, found.length - 1)
        reason: Reason = "departs" if found.resumed else "short"
        junction = 0
        if not found.shared and not self._index.runs:
            reason = "empty"
        elif reachable - found.resumed >= self.policy.junction:
            reason, junction = "lost" if lost else "unsaved", reachable
        elif reachable == found.length - 1:
            reason = "whole"
        return replace(found, reason=reason, junction=junction)

    def _in_budget(self, run: StoredRun, length: int) -> bool:
        """Whether the rows to be copied may be stored beside those they are of."""
        copied = run.state.nbytes * length // len(run)
        return self.nbytes + copied <= self._most

    def _branched(self, run: StoredRun, found: Lookup, capacity: int) -> Taken:
        length = found.resumed
        state = run.state.branch(length, capacity)
        draft = _cut(_copy(run.draft_at(length)), length)
        return Taken(found, state, draft, _before(run, length))

    def _taken_over(self, run: StoredRun, found: Lookup) -> Taken:
        length = found.resumed
        self._remove(run)
        run.state.roll_back(length)
        draft = run.draft_at(length)
        if draft is not run.draft:  # it stays where it was noted
            draft = _copy(draft)
        return Taken(found, run.state, _cut(draft, length), _before(run, length))

    def _end(self, run: StoredRun) -> None:
        """Note the end, instead of an earlier end that nobody came back to."""
        for place, about in list(run.places.items()):
            if about.kind == "end" and not about.reused and place != len(run):
                del run.places[place]
                run.state.forget(place)
        run.state.rest()
        run.state.keep()
        run.note(len(run), "system" if run.asked else "end", self._now)

    def _merged(self, run: StoredRun) -> StoredRun:
        """The run, and instead of any that begins as it does, the longer of the two."""
        for other, common in list(self._index.matches(run.tokens)):
            if common == len(other):
                self._remove(other)
                run.absorb(other)
            elif common == len(run):
                self._remove(other)
                other.absorb(run)
                run = other
        return run

    def _shrink(self, newest: StoredRun) -> None:
        before = len(self._index.runs)
        while self.nbytes > self._most:
            victim = next_victim(self._index.runs, newest)
            if victim is None:
                break
            if self._is_favoured(victim.run, newest):
                self._remove(newest)
                break
            if victim.place is None:
                self._remove(victim.run)
            else:
                victim.run.give_up(victim.place)
        if len(self._index.runs) < before:
            mx.clear_cache()  # mlx would keep the buffers for itself

    def _is_favoured(self, run: StoredRun, newest: StoredRun) -> bool:
        """Whether a run is too long to make room for so short a prompt."""
        if len(newest) >= self.policy.short:
            return False
        others = [each for each in self._index.runs if each is not newest]
        longer = len(run) >= self.policy.favour * len(newest)
        return longer and stored_bytes(others) <= self._most


def _before(run: StoredRun, length: int) -> dict[int, Place]:
    return {at: replace(about) for at, about in run.places.items() if at <= length}


def _copy(context: DrafterContext | None) -> DrafterContext | None:
    if context is None:
        return None
    copied = context.copy()
    mx.eval(copied.arrays)  # a lazy copy would keep the original's buffers alive
    return copied


def _cut(context: DrafterContext | None, length: int) -> DrafterContext | None:
    """The context at ``length``; None where it ends before, or nothing is left."""
    if context is None or context.position < length:
        return None
    context.cut(length)
    return context if len(context) else None
