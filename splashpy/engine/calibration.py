# SPDX-License-Identifier: Apache-2.0
"""Costs of cycles, kept for the next start.

What a pass costs in plain steps follows from the machine, MLX, the kernels that run and
the two models, and stays as it is while they do. So it is kept under a key made of all
of these; whatever differs is another key. A machine busy with something else measures
nonsense, so costs are believed once two starts in a row measured nearly the same. From
then on only the plain step is timed at every start: heat and power change it.

The file is one JSON object of entries, newest last. Whatever is wrong with it, costs
are simply measured again; two processes that write at once lose an entry of one of
them, never the file.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from splashpy.drafting.pace import Costs

FILE = "costs.json"
FORMAT = 1
MOST_ENTRIES = 64
_ALIKE = 0.15  # of the larger; on a quiet machine two starts differ by a few hundredths
_DEAREST = 1e6  # plain steps; a larger cost was never measured


@dataclass(frozen=True, slots=True)
class Calibration:
    """Where the costs of one pair on one machine are kept.

    Attributes:
        path: of the file; None keeps nothing.
        facts: everything the costs depend on.
        again: measure even where costs are kept.
    """

    path: Path | None
    facts: Mapping[str, Any]
    again: bool = False

    @property
    def key(self) -> str:
        """A digest of the facts."""
        text = json.dumps(self.facts, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:32]

    def read(self, rows: Sequence[int]) -> Costs | None:
        """The kept costs; None where there are none to believe, or not of these passes.

        Args:
            rows: of the passes that must be among them.
        """
        if self.path is None or self.again:
            return None
        entry = _entries(self.path).get(self.key)
        costs = _costs(entry)
        if entry is None or costs is None or not entry.get("confirmed"):
            return None
        alike = [width for width, _ in costs.passes] == sorted(set(rows))
        return costs if alike else None

    def write(self, costs: Costs) -> None:
        """Keep costs; silently not, where that is impossible."""
        if self.path is None:
            return
        entries = _entries(self.path)
        before = _costs(entries.pop(self.key, None))
        entries[self.key] = {
            "facts": self.facts,
            "passes": [list(each) for each in costs.passes],
            "draft": costs.draft,
            "plain_seconds": costs.plain_seconds,
            "confirmed": before is not None and _alike(before, costs),
        }
        latest = dict(list(entries.items())[-MOST_ENTRIES:])
        _replace(self.path, {"format": FORMAT, "entries": latest})


def _entries(path: Path) -> dict[str, Any]:
    try:
        kept = json.loads(path.read_text(encoding="utf-8"))
        return dict(kept["entries"]) if kept["format"] == FORMAT else {}
    except (OSError, ValueError, KeyError, TypeError):
        return {}


def _costs(entry: Any) -> Costs | None:
    """The costs of an entry; None where it holds no such thing."""
    try:
        passes = tuple((int(rows), float(cost)) for rows, cost in entry["passes"])
        costs = Costs(passes, float(entry["draft"]), float(entry["plain_seconds"]))
    except (KeyError, TypeError, ValueError):
        return None
    ascending = [1.0, *(cost for _, cost in passes)]
    sound = ascending == sorted(ascending) and ascending[-1] <= _DEAREST
    return costs if sound and 0 <= costs.draft <= _DEAREST else None


def _alike(one: Costs, other: Costs) -> bool:
    """Whether passes and drafts cost nearly the same number of plain steps."""
    if [rows for rows, _ in one.passes] != [rows for rows, _ in other.passes]:
        return False
    ours = [*(cost for _, cost in one.passes), 1 + one.draft]
    theirs = [*(cost for _, cost in other.passes), 1 + other.draft]
    pairs = zip(ours, theirs, strict=True)
    return all(abs(a - b) <= _ALIKE * max(a, b) for a, b in pairs)


def _replace(path: Path, document: Mapping[str, Any]) -> None:
    """Write a file whole or not at all."""
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                json.dump(document, file, indent=1)
            Path(name).replace(path)
        except OSError:
            Path(name).unlink(missing_ok=True)
