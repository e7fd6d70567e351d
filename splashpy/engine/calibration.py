# SPDX-License-Identifier: Apache-2.0
"""Costs of cycles, kept for the next start.

What a pass costs in plain steps follows from the machine, MLX, the kernels that run and
the two models, and stays as it is while they do. So it is kept under a key made of all
of these; whatever differs is another key. A machine busy with something else measures
nonsense, so costs are believed once two starts in a row measured nearly the same. From
then on only the plain step is timed at every start: heat and power change it. What
``finer_costs.py`` adds later is kept beside them.

The file is one JSON object of entries, newest last. Whatever is wrong with it, costs
are simply measured again; two processes that write at once lose an entry of one of
them, never the file.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import accumulate
from pathlib import Path
from typing import Any

from splashpy.drafting.pace import Costs

FILE = "costs.json"
FORMAT = 2
MOST_ENTRIES = 64
_KEPT = ("passes", "draft", "plain_seconds", "depths", "shared")
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
        return costs if set(rows) <= {width for width, _ in costs.passes} else None

    @property
    def trouble(self) -> str:
        """Why what is kept cannot be used; empty where it can, or nothing is kept."""
        if self.path is None or not self.path.exists():
            return ""
        try:
            entries = _read(self.path)
        except (OSError, ValueError, KeyError, TypeError):
            return f"{self.path} is damaged"
        if entries is None:
            return f"{self.path} is of another version"
        entry = entries.get(self.key)
        if entry is not None and _costs(entry) is None:
            return f"{self.path} has costs that cannot be"
        return ""

    def write(self, costs: Costs) -> None:
        """Keep costs that were measured now; silently not, where that is impossible.

        What an earlier start found out beyond them stays, if it measured alike.
        """
        if self.path is None:
            return
        before = _costs(_entries(self.path).get(self.key))
        alike = before is not None and _alike(before, costs)
        if before is not None and alike:
            costs = _completed(costs, before)
        self._put(costs, confirmed=alike)

    def extend(self, costs: Costs) -> None:
        """Keep costs of :meth:`read` to which more was added."""
        self._put(costs, confirmed=True)

    def _put(self, costs: Costs, *, confirmed: bool) -> None:
        if self.path is None:
            return
        entries = _entries(self.path)
        entries.pop(self.key, None)
        kept = {name: asdict(costs)[name] for name in _KEPT}
        entries[self.key] = {"facts": self.facts, **kept, "confirmed": confirmed}
        latest = dict(list(entries.items())[-MOST_ENTRIES:])
        _replace(self.path, {"format": FORMAT, "entries": latest})


def _entries(path: Path) -> dict[str, Any]:
    try:
        return _read(path) or {}
    except (OSError, ValueError, KeyError, TypeError):
        return {}


def _read(path: Path) -> dict[str, Any] | None:
    """The entries of a file; None where it is of another version."""
    kept = json.loads(path.read_text(encoding="utf-8"))
    return dict(kept["entries"]) if kept["format"] == FORMAT else None


def _costs(entry: Any) -> Costs | None:
    """The costs of an entry; None where it holds no such thing."""
    try:
        costs = Costs(
            tuple((int(rows), float(cost)) for rows, cost in entry["passes"]),
            float(entry["draft"]),
            float(entry["plain_seconds"]),
            tuple((int(rows), float(cost)) for rows, cost in entry["depths"]),
            tuple((int(n), int(rows), float(c)) for n, rows, c in entry["shared"]),
        )
    except (KeyError, TypeError, ValueError, OverflowError):
        return None
    return costs if _sound(costs) else None


def _sound(costs: Costs) -> bool:
    """Whether these costs can be: none is absurd, and more rows cost no less."""
    passes = [1.0, *(cost for _, cost in costs.passes)]
    depths = [0.0, *(cost for _, cost in costs.depths)]
    shared = [cost for _, _, cost in costs.shared]
    numbers = [*passes, *depths, *shared, costs.draft, costs.plain_seconds]
    if not all(math.isfinite(each) and 0 <= each <= _DEAREST for each in numbers):
        return False
    return all(
        [width for width, *_ in rows] == sorted({width for width, *_ in rows})
        for rows in (costs.passes, costs.depths)
    ) and all(row == sorted(row) for row in (passes, depths))


def _alike(one: Costs, other: Costs) -> bool:
    """Whether passes and drafts cost nearly the same number of plain steps."""
    ours, theirs = dict(one.passes), dict(other.passes)
    common = ours.keys() & theirs.keys()
    if len(common) < min(len(ours), len(theirs)):
        return False
    pairs = [(ours[rows], theirs[rows]) for rows in common]
    pairs.append((1 + one.draft, 1 + other.draft))
    return all(abs(a - b) <= _ALIKE * max(a, b) for a, b in pairs)


def _completed(costs: Costs, before: Costs) -> Costs:
    """Costs with what was known before and is not among them."""
    merged = {**dict(before.passes), **dict(costs.passes)}
    rising = accumulate((merged[rows] for rows in sorted(merged)), max)
    return replace(
        costs,
        passes=tuple(zip(sorted(merged), rising, strict=True)),
        depths=costs.depths or before.depths,
        shared=costs.shared or before.shared,
    )


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
