# SPDX-License-Identifier: Apache-2.0
"""Writes records on a thread of its own, behind the answers.

The thread sees numpy arrays only and never calls mlx. The first write that fails, or
an index that cannot be changed, ends writing for this process; reading goes on.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from dataclasses import dataclass
from time import monotonic

from splashpy.cache.disk.catalogue import Catalogue, Entry
from splashpy.cache.disk.directory import NamespaceDirectory, remove
from splashpy.cache.disk.record import Record, write
from splashpy.cache.disk.room import WriteAllowance, expired, oldest_leaf

_HEADER_BYTES = 1 << 13  # at most, for a model of a hundred layers


@dataclass(frozen=True, slots=True)
class _Job:
    entry: Entry
    record: Record
    kept: frozenset[bytes]


class Writer:
    """Owns what is written to one directory.

    Args:
        directory: held by this process.
        catalogue: of its records.
        quota: bytes of all records.
        clock: seconds of the wall clock.
    """

    def __init__(
        self,
        directory: NamespaceDirectory,
        catalogue: Catalogue,
        quota: int,
        clock: Callable[[], float],
    ) -> None:
        self._directory, self._catalogue = directory, catalogue
        self.quota = quota
        self._clock = clock
        self._allowance = WriteAllowance(monotonic())
        self._staged = 0
        self._changed = threading.Condition()
        self._jobs: queue.SimpleQueue[_Job | Entry | list[Entry] | None]
        self._jobs = queue.SimpleQueue()
        self._waiting = 0
        self._thread = threading.Thread(
            target=self._run, name="splashpy-cache-writer", daemon=True
        )
        self._thread.start()

    @property
    def staged_bytes(self) -> int:
        """Bytes handed over and not yet written."""
        return self._staged

    @property
    def open(self) -> bool:
        """Whether records are written."""
        return self._directory.writable

    def put(self, entry: Entry, record: Record, kept: frozenset[bytes]) -> None:
        """Write a record some time.

        Args:
            entry: its place in the catalogue.
            record: what to write.
            kept: names of records that must not go for it.
        """
        with self._changed:
            self._staged += record.nbytes
            self._waiting += 1
        self._jobs.put(_Job(entry, record, kept))

    def drop(self, entry: Entry) -> None:
        """Delete a record some time."""
        self._put(entry)

    def touch(self, entries: list[Entry]) -> None:
        """Note that records were used."""
        now = self._clock()
        for entry in entries:
            entry.used = now
        self._put(entries)

    def settle(self, timeout: float | None = None) -> bool:
        """Wait until everything handed over is written; False when it took longer."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._waiting, timeout)

    def close(self, timeout: float | None = None) -> None:
        """Write what was handed over, then end the thread."""
        self._jobs.put(None)
        self._thread.join(timeout)

    def _put(self, job: Entry | list[Entry]) -> None:
        with self._changed:
            self._waiting += 1
        self._jobs.put(job)

    def _run(self) -> None:
        self._guarded(self._expire)
        while (job := self._jobs.get()) is not None:
            if isinstance(job, _Job):
                self._guarded(self._write, job)
            elif isinstance(job, list):
                self._guarded(self._catalogue.update, job)
            else:
                self._guarded(self._delete, job)
            with self._changed:
                self._waiting -= 1
                if isinstance(job, _Job):
                    self._staged -= job.record.nbytes
                self._changed.notify_all()
        self._catalogue.close()
        self._directory.release()

    def _guarded(self, work: Callable[..., None], *arguments: object) -> None:
        if not self._directory.writable:
            return
        try:
            work(*arguments)
        except Exception as error:  # noqa: BLE001 - whatever it is, answers go on
            self._directory.writable = False
            said = error.strerror if isinstance(error, OSError) else None
            self._directory.why_not = said or repr(error)

    def _write(self, job: _Job) -> None:
        entry, size = job.entry, job.record.nbytes + _HEADER_BYTES
        known = self._catalogue.find(entry.kind, entry.name)
        if known is not None or not self._has_parent(entry):
            return
        # What it continues may be the oldest leaf until it is there itself.
        if not self._make_room(size, job.kept | {entry.parent}):
            return
        if not self._allowance.take(size, monotonic()):
            return
        path = self._directory.file(entry.kind, entry.name)
        temporary = self._directory.temporary(entry.kind, entry.name)
        entry.nbytes = write(path, job.record, temporary=temporary)
        entry.used = self._clock()
        self._catalogue.save([entry])

    def _has_parent(self, entry: Entry) -> bool:
        """Whether the record it continues is there; the root's parent is empty."""
        if not entry.parent:
            return True
        kind = "state" if entry.kind == "draft" else "block"
        return self._catalogue.find(kind, entry.parent) is not None

    def _make_room(self, size: int, kept: frozenset[bytes]) -> bool:
        while self._catalogue.nbytes + size > self.quota:
            entry = oldest_leaf(self._catalogue, set(kept))
            if entry is None:
                return False
            self._delete(entry)
        return True

    def _expire(self) -> None:
        for entry in expired(self._catalogue, self._clock()):
            if self._catalogue.is_leaf(entry):
                self._delete(entry)

    def _delete(self, entry: Entry) -> None:
        self._catalogue.drop(entry)
        remove(self._directory.file(entry.kind, entry.name))
