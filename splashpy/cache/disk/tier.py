# SPDX-License-Identifier: Apache-2.0
"""The prefix cache on disk, as the engine's thread sees it.

A *state* record stands for one place of a run: what cannot be cut, and the rows after
the last full block. The blocks before it are records of their own, shared by all runs
that begin with them. A state is restored whole or not at all: a record that is missing
or damaged is deleted, and the next shorter place is tried.

Rows leave the engine in small steps between requests, as copies; a writer thread does
the rest.
"""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from splashpy.cache.chain import (
    BLOCK,
    Tokens,
    block_hashes,
    shared_length,
)
from splashpy.cache.disk import arrays
from splashpy.cache.disk.catalogue import Catalogue, Entry
from splashpy.cache.disk.directory import NamespaceDirectory
from splashpy.cache.disk.names import ROOT, Names
from splashpy.cache.disk.outgoing import SHORTEST, Outgoing
from splashpy.cache.disk.record import BadRecord, Record, read
from splashpy.cache.disk.room import sweep_others
from splashpy.cache.disk.writer import Writer
from splashpy.cache.stored_run import StoredRun
from splashpy.models.dflash2_context import DrafterContext
from splashpy.models.state import TargetState

_READERS = 3
_STAGED = (
    _READERS + 2
)  # records at a time: read ahead, one in use, and MLX's copy of it
_SIBLINGS = 4  # blocks read to tell where a prompt departs

TOLD = 8
"""Tokens of a stored sequence told where a prompt departs from it."""


@dataclass(frozen=True, slots=True)
class Found:
    """A place on disk a prompt can be resumed at.

    Attributes:
        position: tokens before it.
        blocks: of the rows before it, in order.
        state: the rest; None where the last block is cut instead.
    """

    position: int
    blocks: tuple[Entry, ...]
    state: Entry | None

    @property
    def records(self) -> tuple[Entry, ...]:
        """What has to be read."""
        return (*self.blocks, self.state) if self.state else self.blocks

    @property
    def rows(self) -> int:
        """Rows there are while it is restored: blocks are cut once they are in."""
        return max(self.position, BLOCK * len(self.blocks))

    @property
    def staged_bytes(self) -> int:
        """Bytes of copies there are at a time while it is restored."""
        return _STAGED * max((each.nbytes for each in self.records), default=0)


@dataclass(frozen=True, slots=True)
class Restored:
    """What was restored: the state, and the drafter's context if that was there."""

    state: TargetState
    draft: DrafterContext | None


@dataclass(frozen=True, slots=True)
class DraftSide:
    """The drafter whose contexts are kept too.

    Attributes:
        digest: of its namespace.
        new_context: an empty context of it.
    """

    digest: bytes
    new_context: Callable[[], DrafterContext | None]


class DiskTier:
    """One namespace on disk.

    Args:
        directory: held by this process.
        digest: of the namespace.
        quota: bytes it may take.
        clock: seconds of the wall clock.
        draft: the drafter; None without one.
        shortest: tokens of the shortest place that is written.
    """

    def __init__(
        self,
        directory: NamespaceDirectory,
        digest: bytes,
        *,
        quota: int,
        clock: Callable[[], float],
        draft: DraftSide | None = None,
        shortest: int = SHORTEST,
    ) -> None:
        self._directory, self._digest = directory, digest
        self._draft = draft
        self._names = Names(digest, draft.digest if draft else b"")
        index = directory.path / "index.sqlite" if directory.writable else None
        self._catalogue = Catalogue(index)
        self._catalogue.load(directory, clock())
        self._writer = Writer(directory, self._catalogue, quota, clock)
        self._outgoing = Outgoing(self._catalogue, self._writer, self._names, shortest)
        self._readers = ThreadPoolExecutor(_READERS, "splashpy-cache-reader")
        self.bad_records = 0

    @classmethod
    def open(
        cls,
        root: Path,
        digest: bytes,
        identity: dict[str, Any],
        *,
        quota: int,
        clock: Callable[[], float],
        **parts: Any,
    ) -> DiskTier | None:
        """The tier of a namespace; None while another engine uses its directory.

        Args:
            root: directory of all namespaces.
            digest: of the namespace.
            identity: the namespace in full.
            quota: bytes all namespaces may take.
            clock: seconds of the wall clock.
            **parts: further arguments of the constructor.
        """
        directory = NamespaceDirectory.hold(root, digest, identity)
        if directory is None:
            return None
        if directory.writable:
            quota -= sweep_others(root, directory.path, quota, clock())
        return cls(directory, digest, quota=quota, clock=clock, **parts)

    @property
    def why_not_written(self) -> str:
        """Why nothing is written any more; empty while it is."""
        return self._directory.why_not

    def find(self, tokens: Tokens, *, cut_anywhere: bool) -> tuple[int, list[Found]]:
        """Places a prompt can be resumed at, the longest first.

        Args:
            tokens: the prompt.
            cut_anywhere: whether a block's rows may be used in part.

        Returns:
            Tokens known to be shared, and the places.
        """
        limit = len(tokens) - 1
        blocks: list[Entry] = []
        found: list[Found] = self._states(tokens, blocks, ROOT)
        for name in block_hashes(self._digest, tokens):
            entry = self._catalogue.find("block", name)
            if entry is None:
                break
            blocks.append(entry)
            found += self._states(tokens, blocks, name)
        shared = max([BLOCK * len(blocks), *(each.position for each in found)])
        whole = min(BLOCK * len(blocks), limit)
        if cut_anywhere and whole > 0:
            found.append(Found(whole, tuple(blocks), None))
        found.sort(key=lambda each: (-each.position, each.state is None))
        return shared, found

    def departure(self, tokens: Tokens, shared: int) -> tuple[int, tuple[int, ...]]:
        """Where exactly a prompt departs from what is stored.

        Args:
            tokens: the prompt.
            shared: full blocks it shares, in tokens, and perhaps more.

        Returns:
            Tokens shared, and the first that were stored instead of the prompt's.
        """
        start = shared // BLOCK * BLOCK
        name = next(reversed(list(block_hashes(self._digest, tokens[:start]))), ROOT)
        best: tuple[int, tuple[int, ...]] = (shared, ())
        for stored in self._continuations(name):
            common = shared_length(stored, tokens[start:])
            if start + common >= best[0]:
                best = (start + common, tuple(stored[common : common + TOLD]))
        return best

    def _continuations(self, name: bytes) -> Iterator[Tokens]:
        """Tokens stored after a block, of the latest few records."""
        for entry in self._catalogue.states_after(name)[:_SIBLINGS]:
            yield array("I", entry.tail)
        for entry in self._catalogue.blocks_after(name)[:_SIBLINGS]:
            record = self._read(entry)
            if record is not None and "tokens" in record.arrays:
                yield array("I", record.arrays["tokens"].data.tobytes())

    def restore(
        self, found: Found, tokens: Tokens, state: TargetState
    ) -> Restored | None:
        """Fill an empty state; None where a record proved bad, which is then gone."""
        wanted = list(found.records)
        bad = 0
        for entry, record in self._in_order(wanted):
            if record is None or not _belongs(entry, record, tokens):
                bad += 1
                self._forget(entry)
            elif not bad:  # else the others are only proved
                arrays.rows_in(state, record.arrays)
                if entry.kind == "state":
                    arrays.snapshot_in(state, found.position, record.arrays)
        self.bad_records += bad
        if bad:
            return None
        if state.length > found.position:
            state.roll_back(found.position)
        self._writer.touch(wanted)
        return Restored(state, self._restored_context(found))

    def offer(self, run: StoredRun) -> None:
        """Write what is worth it of a run that was stored, in steps."""
        self._outgoing.offer(run)

    def abandon(self) -> None:
        """Do no more of the steps: their runs are about to change."""
        self._outgoing.abandon()

    def leave(self, run: StoredRun) -> None:
        """Write nothing more of a run, which may be given up now."""
        self._outgoing.leave(run)

    def unfinished(self) -> list[StoredRun]:
        """Runs whose steps were abandoned since this was last asked."""
        return self._outgoing.unfinished()

    @property
    def staged_bytes(self) -> int:
        """Bytes of copies that wait for the writer."""
        return self._outgoing.staged_bytes

    @property
    def behind(self) -> bool:
        """Whether as much waits for the writer as may."""
        return self._outgoing.behind

    def step(self, fits: Callable[[int], bool]) -> bool:
        """Copy a little of what is to be written; True while there is more.

        Args:
            fits: whether there is memory for copies of so many bytes.
        """
        return self._outgoing.step(fits)

    def settle(self, timeout: float | None = None) -> bool:
        """Wait until everything copied is written; False when it took longer."""
        return self._writer.settle(timeout)

    def close(self, timeout: float | None = None) -> None:
        """End both kinds of threads; what was copied is still written."""
        self._outgoing.abandon()
        self._readers.shutdown()
        self._writer.close(timeout)

    def _states(
        self, tokens: Tokens, blocks: Sequence[Entry], parent: bytes
    ) -> list[Found]:
        start, data = BLOCK * len(blocks), memoryview(tokens).cast("B")
        return [
            Found(entry.position, tuple(blocks), entry)
            for entry in self._catalogue.states_after(parent)
            if entry.position < len(tokens)
            and data[4 * start : 4 * entry.position] == entry.tail
        ]

    def _in_order(self, wanted: Sequence[Entry]) -> Iterator[tuple[Entry, Any]]:
        """Records with a few read ahead."""
        ahead: deque[tuple[Entry, Any]] = deque()
        for entry in wanted:
            ahead.append((entry, self._readers.submit(self._read, entry)))
            if len(ahead) > _READERS:
                first, reading = ahead.popleft()
                yield first, reading.result()
        for entry, reading in ahead:
            yield entry, reading.result()

    def _read(self, entry: Entry) -> Record | None:
        """A record, proved; on a reader's thread."""
        path = self._directory.file(entry.kind, entry.name)
        try:
            return read(
                path, {"ns": self._names.namespace(entry.kind), **entry.about()}
            )
        except BadRecord:
            return None

    def _forget(self, entry: Entry) -> None:
        self._catalogue.hide(entry)
        self._writer.drop(entry)

    def _restored_context(self, found: Found) -> DrafterContext | None:
        context = self._draft.new_context() if self._draft else None
        if context is None or found.state is None:
            return None
        name = self._names.draft(found.state.name)
        entry = self._catalogue.find("draft", name)
        if entry is None:
            return None
        record = self._read(entry)
        if record is None:
            self._forget(entry)
            return None
        arrays.context_in(context, found.position, record.arrays)
        self._writer.touch([entry])
        return context


def _belongs(entry: Entry, record: Record, tokens: Tokens) -> bool:
    """Whether a block's tokens are the prompt's: hashes find, equality decides."""
    if entry.kind != "block":
        return True  # the tail was compared when it was found
    start = entry.position - BLOCK
    wanted = array("I", tokens[start : entry.position]).tobytes()
    stored = record.arrays.get("tokens")
    return stored is not None and stored.data.tobytes() == wanted
