# SPDX-License-Identifier: Apache-2.0
"""A long prompt of a wanted length that needs no download.

Numbered notes in plain words: no sentence stands there twice, so lookup finds no more
in it than in other prose.
"""

from __future__ import annotations

from splashpy.bench.session import Session

_WHO = ("the gardener", "a teacher", "our neighbour", "the baker", "an engineer")
_DID = ("repaired", "painted", "carried", "measured", "sold", "borrowed", "described")
_WHAT = (
    "a wooden boat",
    "the old clock",
    "two lamps",
    "a map of the town",
    "the fence",
)
_SAMPLE = 32  # notes whose length tells that of others
_WHEN = ("on Monday", "before sunrise", "after the storm", "in early spring")


def note(number: int) -> str:
    """One sentence; it tells its number, so all are different."""
    who, did = _WHO[number % 5], _DID[number * 3 % 7]
    what, when = _WHAT[number // 5 % 5], _WHEN[number // 7 % 4]
    return f"Note {number}: {when} {who} {did} {what}, and it took {number % 53} hours."


def fill(session: Session, text: str, length: int) -> str:
    """Notes before a text, as many as make a prompt of at most ``length`` tokens."""

    def tokens(count: int) -> int:
        return len(session.prompt_ids(_with_notes(text, count)))

    bare = tokens(0)
    per_note = (tokens(_SAMPLE) - bare) / _SAMPLE
    low, high = 0, max(int(1.5 * (length - bare) / per_note), 0)
    while low < high:
        count = (low + high + 1) // 2
        low, high = (count, high) if tokens(count) <= length else (low, count - 1)
    return _with_notes(text, low)


def _with_notes(text: str, count: int) -> str:
    return "\n".join([*map(note, range(1, count + 1)), "", text])
