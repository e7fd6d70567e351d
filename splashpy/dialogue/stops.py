# SPDX-License-Identifier: Apache-2.0
"""Finding the first of some strings in text that arrives in pieces.

The match is the one that is complete first; of those complete at the same character,
the longest. So what is found does not depend on how the text was cut into pieces.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from splashpy.errors import UsageError


@dataclass(frozen=True, slots=True)
class StopResult:
    """What a piece of text led to.

    Attributes:
        text: text that is certainly before any match.
        matched: the string found, which ends the text; None while there is none.
        rest: text after the match.
    """

    text: str
    matched: str | None = None
    rest: str = ""


class StopMatcher:
    """Passes text on up to the first of ``stops``; holds back what may begin one.

    Raises:
        UsageError: a stop string is empty.
    """

    def __init__(self, stops: Iterable[str] = ()) -> None:
        self._stops = tuple(stops)
        if "" in self._stops:
            raise UsageError(
                "a stop string is empty",
                why="it would end every answer before it begins",
                fix=("leave it out",),
            )
        self._longest = max(map(len, self._stops), default=0)
        self._held = ""

    def feed(self, text: str) -> StopResult:
        """Take more text; after a match, the next call starts afresh."""
        text = self._held + text
        found = [
            (at + len(stop), at, stop)
            for stop in self._stops
            if (at := text.find(stop)) >= 0
        ]
        if found:
            end, start, stop = min(found)
            self._held = ""
            return StopResult(text[:start], stop, text[end:])
        cut = len(text) - self._beginning(text)
        self._held = text[cut:]
        return StopResult(text[:cut])

    @property
    def held(self) -> int:
        """Characters held back."""
        return len(self._held)

    def flush(self) -> str:
        """What was held back and did not become a match."""
        text, self._held = self._held, ""
        return text

    def _beginning(self, text: str) -> int:
        """Length of the longest end of ``text`` that begins a stop string."""
        for length in range(min(len(text), self._longest - 1), 0, -1):
            if any(stop.startswith(text[-length:]) for stop in self._stops):
                return length
        return 0
