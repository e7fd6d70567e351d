# SPDX-License-Identifier: Apache-2.0
"""From runs in memory to records, a block at a time, on the engine's thread.

Rows leave as copies between two requests, so a request waits for one step at most.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from itertools import islice

import numpy as np

from splashpy.cache.chain import BLOCK, Tokens
from splashpy.cache.disk import arrays
from splashpy.cache.disk.catalogue import Catalogue, Entry
from splashpy.cache.disk.names import ROOT, Names
from splashpy.cache.disk.record import HostArray, Record
from splashpy.cache.disk.writer import Writer
from splashpy.cache.plan import Kind
from splashpy.cache.stored_run import StoredRun

SHORTEST = 2048
"""Tokens; a shorter beginning is read again as fast."""

_STAGED_BYTES = 256 << 20  # copies that wait to be written
_KINDS: tuple[Kind, ...] = ("system", "stable", "end")
_FULL = 0.9  # of the quota: from here on, only what was used again is written


class Outgoing:
    """Hands the worthwhile places of runs to a writer.

    Args:
        catalogue: of the records there are.
        writer: of further ones.
        names: of all of them.
        shortest: tokens of the shortest place that is written.
    """

    def __init__(
        self, catalogue: Catalogue, writer: Writer, names: Names, shortest: int
    ) -> None:
        self._catalogue, self._writer, self._names = catalogue, writer, names
        self._shortest = shortest
        self._steps: deque[tuple[StoredRun, Iterator[None]]] = deque()
        self._unfinished: list[StoredRun] = []
        self._short = False  # of memory for the next copy

    def offer(self, run: StoredRun) -> None:
        """Write what is worth it of a run that was stored, in steps."""
        if not self._writer.open:
            return
        shortest = BLOCK if run.asked else self._shortest
        for position in sorted(run.places):
            place = run.places[position]
            worth = place.kind in _KINDS and position >= shortest
            if worth and _ready(run, position) and (place.reused or not self._full):
                step = self._write_place(run, position)
                self._steps.append((run, step))

    def abandon(self) -> None:
        """Do no more of the steps: their runs are about to change."""
        self._unfinished += [run for run, _ in self._steps]
        self._steps.clear()

    def leave(self, run: StoredRun) -> None:
        """Write nothing more of a run, and hold on to it no longer."""
        kept = [(other, step) for other, step in self._steps if other is not run]
        self._steps = deque(kept)
        self._unfinished = [each for each in self._unfinished if each is not run]

    def unfinished(self) -> list[StoredRun]:
        """Runs whose steps were abandoned since this was last asked."""
        found, self._unfinished = self._unfinished, []
        return list(dict.fromkeys(found))

    @property
    def staged_bytes(self) -> int:
        """Bytes of copies that wait for the writer."""
        return self._writer.staged_bytes

    @property
    def behind(self) -> bool:
        """Whether as much waits for the writer as may."""
        waiting = self.staged_bytes
        return waiting >= _STAGED_BYTES or (self._short and waiting > 0)

    def step(self, fits: Callable[[int], bool]) -> bool:
        """Copy a little of what is to be written; True while there is more.

        Copies nothing while much waits for the writer, or what does is in the way. A
        run there is no memory for even then is not written.

        Args:
            fits: whether there is memory for copies of so many bytes.
        """
        if not self._writer.open:
            self._steps.clear()
        if not self._steps:
            return False
        run, step = self._steps[0]
        waiting = self.staged_bytes
        self._short = not fits(_copied_bytes(run))
        if self._short and not waiting:
            self.leave(run)
        elif not self._short and waiting < _STAGED_BYTES:
            try:
                next(step)
            except StopIteration:
                self._steps.popleft()
        return bool(self._steps)

    @property
    def _full(self) -> bool:
        return self._catalogue.nbytes >= _FULL * self._writer.quota

    def _write_place(self, run: StoredRun, position: int) -> Iterator[None]:
        """Hand a place over, a block at a time."""
        count = position // BLOCK
        kept = frozenset([*run.hashes[:count], self._names.state(run, position)])
        for index, name in enumerate(islice(run.hashes, count)):
            if self._catalogue.find("block", name) is None:
                self._put_block(run, index, kept)
                yield
        if not _ready(run, position):
            return  # given up meanwhile
        name = self._names.state(run, position)
        if self._catalogue.find("state", name) is None:
            self._put_state(run, position, kept)
            yield
        self._put_context(run, position, kept)

    def _put_block(self, run: StoredRun, index: int, kept: frozenset[bytes]) -> None:
        start, end = BLOCK * index, BLOCK * (index + 1)
        parent = run.hashes[index - 1] if index else ROOT
        entry = Entry("block", run.hashes[index], parent, end, b"", 0, 0.0)
        tokens = {"tokens": _host_tokens(run.tokens[start:end])}
        self._put(entry, tokens | arrays.rows_out(run.state, start, end), kept)

    def _put_state(self, run: StoredRun, position: int, kept: frozenset[bytes]) -> None:
        start = position // BLOCK * BLOCK
        parent = run.hashes[start // BLOCK - 1] if start else ROOT
        tail = run.tokens[start:position].tobytes()
        name = self._names.state(run, position)
        entry = Entry("state", name, parent, position, tail, 0, 0.0)
        parts = arrays.rows_out(run.state, start, position) if tail else {}
        if not run.state.cut_anywhere:
            parts |= arrays.snapshot_out(run.state, position)
        self._put(entry, parts, kept)

    def _put_context(
        self, run: StoredRun, position: int, kept: frozenset[bytes]
    ) -> None:
        context = run.draft_at(position)
        if context is None or not context.bounded or not self._names.drafter:
            return
        if context.position > position:  # what is left of it serves as well
            context = context.copy()
            context.cut(position)
        if context.position < position or not len(context):
            return
        state = self._names.state(run, position)
        name = self._names.draft(state)
        if self._catalogue.find("draft", name) is None:
            entry = Entry("draft", name, state, position, b"", 0, 0.0)
            self._put(entry, arrays.context_out(context), kept)

    def _put(
        self, entry: Entry, parts: dict[str, HostArray], kept: frozenset[bytes]
    ) -> None:
        about = {"ns": self._names.namespace(entry.kind), **entry.about()}
        self._writer.put(entry, Record(about, parts), kept)


def _ready(run: StoredRun, position: int) -> bool:
    """Whether a run can be resumed at a place of it."""
    return run.state.cut_anywhere or position in run.state.checkpoints


def _copied_bytes(run: StoredRun) -> int:
    """Bytes of the largest copy of a run, as MLX makes it and as it waits."""
    places = len(run.state.checkpoints)
    kept = sum(run.state.kept.values()) // max(places, 1)
    return 2 * max(BLOCK * run.state.row_nbytes, kept)


def _host_tokens(tokens: Tokens) -> HostArray:
    return HostArray("U32", np.frombuffer(tokens.tobytes(), dtype="<u4"))
