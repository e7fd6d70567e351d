# SPDX-License-Identifier: Apache-2.0
"""What makes room when the stored bytes exceed the budget.

First rungs that nobody came back to, then whatever was used longest ago: a place that
keeps a copy of recurrent states or windows, or a whole run.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from splashpy.cache.stored_run import StoredRun


@dataclass(frozen=True, slots=True)
class Victim:
    """What to give up: a place of a run, or the run where ``place`` is None."""

    run: StoredRun
    place: int | None


def stored_bytes(runs: Iterable[StoredRun]) -> int:
    """Bytes of rows, recurrent states and drafter contexts; shared ones count once."""
    held: dict[int, int] = {}
    for run in runs:
        held |= run.held()
    return sum(held.values())


def next_victim(runs: Iterable[StoredRun], newest: StoredRun) -> Victim | None:
    """What is given up next; None when only what must stay is left.

    The newest run stays, and the two places of it where its conversation goes on.
    """
    runs = list(runs)
    places = [
        (run.places[place].used, index, place, run)
        for index, run in enumerate(runs)
        for place in _places(run, newest)
    ]
    rungs = [
        found
        for found in places
        if (p := found[3].places[found[2]]).kind == "rung" and not p.reused
    ]
    if rungs:
        _, _, place, run = min(rungs, key=lambda found: found[:3])
        return Victim(run, place)
    # A place goes before its run does, since the rows may still serve another place.
    oldest = [(used, 0, index, Victim(run, at)) for used, index, at, run in places]
    oldest += [
        (run.used, 1, index, Victim(run, None))
        for index, run in enumerate(runs)
        if run is not newest
    ]
    return min(oldest, key=lambda found: found[:3])[3] if oldest else None


def _places(run: StoredRun, newest: StoredRun) -> Iterator[int]:
    """Places that take memory and may go."""
    kept: set[int] = set()
    if run is newest:
        for kind in ("stable", "end"):
            kept |= set(sorted(p for p, a in run.places.items() if a.kind == kind)[-1:])
    held = set(run.state.checkpoints)
    for place, about in run.places.items():
        if place not in kept and (place in held or about.draft is not None):
            yield place
