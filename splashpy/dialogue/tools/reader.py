# SPDX-License-Identifier: Apache-2.0
"""What the readers of calls have in common."""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from typing import Protocol


class Progress(Enum):
    """Where a reader stands after a character."""

    READING = "reading"
    DONE = "done"
    """The region ended with its closing marker, or the call that makes it up."""
    REOPENED = "reopened"
    """The region ended because the next one began."""


class CallReader(Protocol):
    """Reads what follows an opening marker, one character after the other.

    Attributes:
        failed: the text is no call; whatever follows in the region is none either.
        stray: text between calls that belongs to none of them.
    """

    failed: bool
    stray: str

    @property
    def settled(self) -> bool:
        """Whether nothing is under way that an end at this place would cut."""
        ...

    def push(self, character: str) -> Progress:
        """Take one more character."""
        ...

    def finish(self) -> None:
        """The answer ended by itself; close what the model left open, or fail."""
        ...


class OpenString:
    """Whether a value that is JSON stands within a string: a tag there is text.

    Only objects and lists hold strings a tag may stand in. A string with a raw line
    break is none: the model forgot to close it, and the tag means what it says.
    """

    def __init__(self) -> None:
        self._first = ""
        self._quoted = self._escaped = self._broken = False

    @property
    def inside(self) -> bool:
        """Whether the text so far ends within a string."""
        return self._first in ("{", "[") and self._quoted and not self._broken

    def take(self, text: str) -> None:
        """Take more of the value."""
        for character in text:
            self._first = self._first or character.strip()
            if self._escaped:
                self._escaped = False
            elif character == '"':
                self._quoted, self._broken = not self._quoted, False
            else:
                self._escaped = self._quoted and character == "\\"
                self._broken = self._broken or (self._quoted and character == "\n")


class Tail:
    """Recognises some strings at the end of text that arrives by characters.

    What may still become one of them is held back; everything else is passed on.
    """

    def __init__(self, strings: Iterable[str]) -> None:
        self._strings = frozenset(strings)
        self._beginnings = {s[:n] for s in self._strings for n in range(1, len(s))}
        self.held = ""

    def push(self, character: str) -> tuple[str, str]:
        """Text that is certainly not part of a match, and the match, if complete."""
        self.held += character
        if self.held in self._strings:
            match, self.held = self.held, ""
            return "", match
        start = 0
        while start < len(self.held) and self.held[start:] not in self._beginnings:
            start += 1
            if self.held[start:] in self._strings:
                match, passed = self.held[start:], self.held[:start]
                self.held = ""
                return passed, match
        passed, self.held = self.held[:start], self.held[start:]
        return passed, ""

    def flush(self) -> str:
        """What was held back."""
        text, self.held = self.held, ""
        return text
