# SPDX-License-Identifier: Apache-2.0
"""What lies in the cache's directory, for whoever is not the engine.

Directories that an engine holds are looked at and left alone.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from splashpy.cache.disk.catalogue import Entry
from splashpy.cache.disk.directory import (
    in_use,
    read_identity,
    records_below,
    remove,
)
from splashpy.cache.disk.record import SUFFIX, BadRecord, read, read_about


@dataclass(frozen=True, slots=True)
class NamespaceReport:
    """One model's directory.

    Attributes:
        path: of the directory.
        identity: of the model, in full; empty where it cannot be read.
        entries: its records.
        used: whether an engine holds it.
    """

    path: Path
    identity: dict[str, Any]
    entries: tuple[Entry, ...]
    used: bool

    @property
    def nbytes(self) -> int:
        """Bytes of all records."""
        return sum(entry.nbytes for entry in self.entries)

    @property
    def last_used(self) -> float:
        """When a record was last written or read; 0 without one."""
        return max((entry.used for entry in self.entries), default=0.0)

    @property
    def tokens(self) -> int:
        """Tokens of all blocks, and of the tails of states."""
        return sum(
            256 if entry.kind == "block" else len(entry.tail) // 4
            for entry in self.entries
        )

    @property
    def counts(self) -> Counter[str]:
        """Records of each kind."""
        return Counter(entry.kind for entry in self.entries)

    def states(self) -> list[Entry]:
        """Places a prompt can be resumed at, the latest first."""
        found = [entry for entry in self.entries if entry.kind == "state"]
        return sorted(found, key=lambda entry: (-entry.used, -entry.position))


def survey(root: Path) -> list[NamespaceReport]:
    """Every namespace, the latest first."""
    found = []
    with suppress(OSError):
        for path in sorted(root.iterdir()):
            if path.is_dir():
                report = NamespaceReport(
                    path,
                    read_identity(path) or {},
                    tuple(_entries(path)),
                    in_use(path),
                )
                found.append(report)
    return sorted(found, key=lambda report: -report.last_used)


def damaged(report: NamespaceReport) -> Iterator[tuple[Path, str]]:
    """Records that cannot be used, and why; every byte is read."""
    for _, path in records_below(report.path):
        try:
            if path.suffix != SUFFIX:
                raise BadRecord("it was never finished")
            about = read_about(path)
            read(path, {})
            if path.stem != about.get("name"):
                raise BadRecord("it has another record's name")
        except BadRecord as error:
            yield path, str(error)


def clear(report: NamespaceReport) -> bool:
    """Delete a namespace; False while an engine holds it."""
    if in_use(report.path):
        return False
    remove(report.path)
    return True


def _entries(path: Path) -> Iterator[Entry]:
    times = _times(path / "index.sqlite")
    for kind, file in records_below(path):
        with suppress(BadRecord, OSError, ValueError):
            size, written = file.stat().st_size, file.stat().st_mtime
            name = bytes.fromhex(file.stem)
            used = times.get((kind, name), written)
            yield Entry.of(read_about(file), size, used)


def _times(index: Path) -> dict[tuple[str, bytes], float]:
    """When each record was last used, as far as the index can be read."""
    try:
        with closing(sqlite3.connect(f"{index.as_uri()}?mode=ro", uri=True)) as found:
            rows = found.execute("SELECT kind, name, used FROM record").fetchall()
    except sqlite3.Error:
        return {}
    return {(kind, name): used for kind, name, used in rows}
