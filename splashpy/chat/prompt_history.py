# SPDX-License-Identifier: Apache-2.0
"""Earlier prompts of this session, walked with the arrow keys."""

from __future__ import annotations

_MOST_PROMPTS = 2000


class PromptHistory:
    """Prompts that were sent or cleared, and where a walk through them stands.

    A walk shows only prompts that begin with what was typed when it started, and ends
    at that draft again.
    """

    def __init__(self) -> None:
        self._prompts: list[str] = []
        self._matches: list[str] = []
        self._position = 0
        self._draft = ""

    def add(self, prompt: str) -> None:
        """Remember a prompt as the newest; a repeated one moves to the end."""
        if prompt in self._prompts:
            self._prompts.remove(prompt)
        self._prompts = [*self._prompts, prompt][-_MOST_PROMPTS:]
        self.leave()

    def found(self, query: str) -> list[str]:
        """Prompts that contain the letters of a text in order, the newest first.

        Those that contain the text as it is come before the others.
        """
        wanted = query.lower()
        newest = self._prompts[::-1]
        whole = [p for p in newest if wanted in p.lower()]
        loose = [p for p in newest if p not in whole and _contains(p.lower(), wanted)]
        return whole + loose

    def leave(self) -> None:
        """The text was edited: the next walk starts from there."""
        self._matches = []
        self._position = 0

    def older(self, text: str) -> str | None:
        """The prompt before the one shown; None at the oldest."""
        if not self._matches:
            self._draft = text
            self._matches = [p for p in self._prompts if p.startswith(text)]
            self._position = len(self._matches)
        if self._position == 0:
            return None
        self._position -= 1
        return self._matches[self._position]

    def newer(self) -> str | None:
        """The prompt after the one shown, at last the draft; None beyond it."""
        if self._position >= len(self._matches):
            return None
        self._position += 1
        if self._position == len(self._matches):
            return self._draft
        return self._matches[self._position]


def _contains(text: str, letters: str) -> bool:
    """Whether the letters stand in the text in this order, others between them."""
    rest = iter(text)
    return all(letter in rest for letter in letters)
