# SPDX-License-Identifier: Apache-2.0
"""Which records there are, in memory and in ``index.sqlite``.

The copy in memory answers lookups; the file survives. What the file does not list does
not exist, and a missing or broken file is made again from the records themselves.
"""

from __future__ import annotations

import os
import sqlite3
import threading
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from splashpy.cache.disk.directory import (
    FOLDERS,
    NamespaceDirectory,
    RecordKind,
    remove,
)
from splashpy.cache.disk.record import FILE_MODE, SUFFIX, BadRecord, read_about

_SCHEMA = """
CREATE TABLE IF NOT EXISTS record (
    kind TEXT, name BLOB, parent BLOB, position INTEGER, tail BLOB, bytes INTEGER,
    used REAL, PRIMARY KEY (kind, name)
) WITHOUT ROWID
"""
_LONGEST = 1 << 31  # tokens
_INSERT = "INSERT OR REPLACE INTO record VALUES (?, ?, ?, ?, ?, ?, ?)"


@dataclass(slots=True)
class Entry:
    """One record.

    Attributes:
        kind: what it holds.
        name: of a block, its hash; of the others, the name of the state.
        parent: hash of the block before; of a drafter context, the state's name.
        position: tokens up to its end.
        tail: of a state, its tokens after the last full block, as bytes.
        nbytes: of the file.
        used: when it was last written or read, in seconds of the wall clock.
    """

    kind: RecordKind
    name: bytes
    parent: bytes
    position: int
    tail: bytes
    nbytes: int
    used: float

    def about(self) -> dict[str, str]:
        """What the record says about itself."""
        return {
            "kind": self.kind,
            "name": self.name.hex(),
            "parent": self.parent.hex(),
            "position": str(self.position),
            "tail": self.tail.hex(),
        }

    @classmethod
    def of(cls, about: dict[str, str], nbytes: int, used: float) -> Entry:
        """The entry of a record.

        Raises:
            BadRecord: it does not say what it is.
        """
        try:
            entry = cls(
                cast("RecordKind", about["kind"]),
                bytes.fromhex(about["name"]),
                bytes.fromhex(about["parent"]),
                int(about["position"]),
                bytes.fromhex(about["tail"]),
                nbytes,
                used,
            )
        except (KeyError, ValueError, TypeError) as error:
            raise BadRecord(f"the header is damaged: {error!r}") from None
        if not entry.possible:
            raise BadRecord("the header is damaged: no record is like that")
        return entry

    @property
    def possible(self) -> bool:
        """Whether there could be such a record; an index may be damaged, too."""
        names = (self.name, self.parent, self.tail)
        return (
            self.kind in FOLDERS
            and all(isinstance(each, bytes) for each in names)
            and isinstance(self.position, int)
            and 0 <= self.position < _LONGEST
            and isinstance(self.nbytes, int)
            and isinstance(self.used, float)
        )


class Catalogue:
    """The records of one namespace. Any thread may ask; one writes.

    Args:
        path: of the index; None keeps it in memory only.
    """

    def __init__(self, path: Path | None) -> None:
        self._lock = threading.Lock()
        self._entries: dict[tuple[str, bytes], Entry] = {}
        self._states: dict[bytes, list[Entry]] = {}
        self._children: Counter[bytes] = Counter()
        self._bytes = 0
        self._database = _opened(path)
        self.rebuilt = False

    @property
    def nbytes(self) -> int:
        """Bytes of all files."""
        return self._bytes

    def entries(self) -> list[Entry]:
        """Every record."""
        with self._lock:
            return list(self._entries.values())

    def find(self, kind: RecordKind, name: bytes) -> Entry | None:
        """The record of that name."""
        return self._entries.get((kind, name))

    def states_after(self, parent: bytes) -> list[Entry]:
        """States whose last full block has that hash, the longest first."""
        with self._lock:
            found = list(self._states.get(parent, ()))
        return sorted(found, key=lambda entry: -entry.position)

    def blocks_after(self, parent: bytes) -> list[Entry]:
        """Blocks that follow the one of that hash."""
        return [e for e in self.entries() if e.kind == "block" and e.parent == parent]

    def is_leaf(self, entry: Entry) -> bool:
        """Whether no other record needs this one."""
        return entry.kind == "draft" or not self._children[entry.name]

    def load(self, directory: NamespaceDirectory, now: float) -> None:
        """Read the index; where it cannot be read, the records themselves.

        Files nobody lists and entries without a file are dropped.
        """
        rows = _rows(self._database)
        files = {path: kind for kind, path in directory.files()}
        self.rebuilt = rows is None
        for entry in _scanned(files, now) if rows is None else rows:
            path = directory.file(entry.kind, entry.name)
            if files.pop(path, None) is not None:
                # A clock that was set back must not make a record immortal.
                entry.used = min(entry.used, now)
                self._note(entry)
        if directory.writable:
            with suppress(OSError):
                for path in files:
                    remove(path)
            if self.rebuilt:
                self._save_anew(directory)

    def _save_anew(self, directory: NamespaceDirectory) -> None:
        try:
            self.save(self.entries())
        except OSError as error:  # what is there can be read nevertheless
            directory.writable, directory.why_not = False, str(error)

    def save(self, entries: Iterable[Entry]) -> None:
        """Add entries.

        Raises:
            OSError: the index cannot be written.
        """
        entries = list(entries)
        for entry in entries:
            self._note(entry)
        self._change(_INSERT, [_row(entry) for entry in entries])

    def update(self, entries: Iterable[Entry]) -> None:
        """Write down what changed of entries; not of those that were dropped.

        Raises:
            OSError: the index cannot be written.
        """
        listed = [e for e in entries if self.find(e.kind, e.name) is e]
        self._change(_INSERT, [_row(entry) for entry in listed])

    def hide(self, entry: Entry) -> None:
        """Let an entry not be found any more, before it is dropped."""
        with self._lock:
            if self._entries.get((entry.kind, entry.name)) is not entry:
                return
            del self._entries[entry.kind, entry.name]
            self._children[entry.parent] -= 1
            self._bytes -= entry.nbytes
            if entry.kind == "state":
                self._states[entry.parent].remove(entry)

    def drop(self, entry: Entry) -> None:
        """Forget an entry.

        Raises:
            OSError: the index cannot be written.
        """
        self.hide(entry)
        self._change(
            "DELETE FROM record WHERE kind = ? AND name = ?", [(entry.kind, entry.name)]
        )

    def close(self) -> None:
        """Close the file."""
        if self._database is not None:
            self._database.close()
            self._database = None

    def _note(self, entry: Entry) -> None:
        with self._lock:
            known = self._entries.get((entry.kind, entry.name))
            if known is entry:
                return
            if known is not None:
                known.used = max(known.used, entry.used)
                return
            self._entries[entry.kind, entry.name] = entry
            self._children[entry.parent] += 1
            self._bytes += entry.nbytes
            if entry.kind == "state":
                self._states.setdefault(entry.parent, []).append(entry)

    def _change(self, statement: str, rows: Sequence[tuple[object, ...]]) -> None:
        if self._database is None:
            return
        try:
            with self._database:
                self._database.executemany(statement, rows)
        except sqlite3.Error as error:
            raise OSError(f"the index cannot be written: {error}") from None


def _row(entry: Entry) -> tuple[object, ...]:
    return (
        entry.kind,
        entry.name,
        entry.parent,
        entry.position,
        entry.tail,
        entry.nbytes,
        entry.used,
    )


def _opened(path: Path | None) -> sqlite3.Connection | None:
    """The index, made anew where it is broken; None where it cannot be used."""
    if path is None:
        return None
    for _ in range(2):
        with suppress(OSError):
            os.close(os.open(path, os.O_RDWR | os.O_CREAT, FILE_MODE))
        connection = None
        try:
            connection = sqlite3.connect(path, check_same_thread=False)
            connection.execute("PRAGMA journal_mode=WAL")
            connection.execute("PRAGMA synchronous=NORMAL")
            connection.execute(_SCHEMA)
            connection.execute("SELECT * FROM record LIMIT 1")
        except sqlite3.Error:
            if connection is not None:
                connection.close()
            for suffix in ("", "-wal", "-shm"):
                with suppress(OSError):
                    path.with_name(path.name + suffix).unlink(missing_ok=True)
            continue
        return connection
    return None


def _rows(database: sqlite3.Connection | None) -> list[Entry] | None:
    """What the index lists; None where it is new or cannot be read."""
    if database is None:
        return None
    try:
        rows = database.execute(
            "SELECT kind, name, parent, position, tail, bytes, used FROM record"
        ).fetchall()
    except sqlite3.Error:
        return None
    entries = [Entry(*row) for row in rows]
    return entries if entries and all(each.possible for each in entries) else None


def _scanned(files: Iterable[Path], now: float) -> list[Entry]:
    entries = []
    for path in files:
        if path.suffix == SUFFIX:
            with suppress(BadRecord, OSError):
                size = path.stat().st_size
                entries.append(Entry.of(read_about(path), size, now))
    return entries
