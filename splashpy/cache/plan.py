# SPDX-License-Identifier: Apache-2.0
"""Where a target that cannot be cut anywhere is to be kept.

A window or a recurrent state can be resumed only where it was saved, and saving it
costs as much memory as thousands of rows of keys and values. So a prompt is stopped at
few places: those a later prompt is likely to share its tokens up to.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

Kind = Literal["system", "stable", "end", "rung", "junction"]
"""Why a place is kept.

``system``: end of the system prompt and tools, which other conversations share.
``stable``: the last token of a prompt that the next turn will render alike.
``end``: all tokens fed when the answer was complete.
``rung``: at regular distances, for a prompt that departs early.
``junction``: where an earlier prompt was found to depart and nothing was kept.
"""

_MORE_WORTH: tuple[Kind, ...] = ("system", "stable", "junction", "rung", "end")


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """Which places are kept. Lengths in tokens.

    Attributes:
        rung: distance of rungs in a prompt; doubled until at most ``rungs`` remain.
        rungs: rungs of one prompt at most.
        rung_before_stable: a rung nearer than this before ``stable`` is not kept.
        shortest: a shorter beginning is not worth keeping or restoring.
        junction: how much deeper than the resume a departure must lie to be kept.
        copied: a tail of fewer rows is given up rather than copied around.
        short: a prompt below this may not evict one ``favour`` times longer.
        favour: see ``short``.
    """

    rung: int = 8192
    rungs: int = 8
    rung_before_stable: int = 2048
    shortest: int = 16
    junction: int = 256
    copied: int = 256
    short: int = 1024
    favour: int = 4


@dataclass(frozen=True, slots=True)
class Marks:
    """What is known about a prompt's places.

    Attributes:
        system: tokens of the system prompt and tools; 0 where that is not known.
        unstable: tokens at its end that the next turn may render differently.
    """

    system: int = 0
    unstable: int = 1


UNMARKED = Marks()
"""A prompt of which nothing is known."""


def plan(
    policy: Policy, *, cached: int, length: int, marks: Marks, junction: int = 0
) -> dict[int, Kind]:
    """The places of a prompt to keep, by the number of tokens before them.

    Args:
        policy: which places are kept.
        cached: tokens that are restored.
        length: tokens of the prompt; at least one is left after every place.
        marks: of the prompt.
        junction: where an earlier prompt departed; 0 where none did.
    """
    stable = stable_length(length, marks)
    places: dict[int, Kind] = {
        rung: "rung"
        for rung in rungs(policy, stable)
        if rung <= stable - policy.rung_before_stable
    }
    wanted: list[tuple[Kind, int]] = [
        ("junction", junction),
        ("stable", stable),
        ("system", marks.system),
    ]
    places |= {place: kind for kind, place in wanted if place >= policy.shortest}
    return {place: places[place] for place in sorted(places) if cached < place < length}


def stable_length(length: int, marks: Marks) -> int:
    """Tokens of a prompt the next turn is expected to begin with."""
    return max(length - max(marks.unstable, 1), 0)


def rungs(policy: Policy, length: int) -> Sequence[int]:
    """Places of the rungs below ``length``; those of a longer prompt are among them.

    The distance is a power of two times ``policy.rung``, so that a prompt that grows
    thins its rungs without needing new ones.
    """
    distance = policy.rung
    while length // distance > policy.rungs:
        distance *= 2
    return range(distance, length + 1, distance)


def outranks(kind: Kind, other: Kind) -> bool:
    """Whether a place kept for both reasons is kept for the first."""
    return _MORE_WORTH.index(kind) < _MORE_WORTH.index(other)
