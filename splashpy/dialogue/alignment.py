# SPDX-License-Identifier: Apache-2.0
"""Which tokens of an answer are part of its text, told as soon as that is certain.

A stop string cuts the text in the middle of a token, and text that may begin one is
held back. A token belongs to the answer if its text begins before the cut, so tokens
are held back as their text is: what is told of them says no more than the text.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from splashpy.protocol import Channel


@dataclass(frozen=True, slots=True)
class TokenPlace:
    """Where a token stands in an answer.

    Attributes:
        channel: what it is part of.
        offset: characters of all tokens before it; special tokens have none.
    """

    channel: Channel
    offset: int


class Alignment:
    """Follows the tokens of one answer, those that end it left out."""

    def __init__(self) -> None:
        self._held: deque[tuple[int, TokenPlace]] = deque()
        self._settled: list[TokenPlace] = []

    def add(self, begin: int, place: TokenPlace) -> None:
        """Take a token.

        Args:
            begin: where its text begins in the text that is searched for stops.
            place: where it stands.
        """
        self._held.append((begin, place))

    def settle(self, end: int | None = None) -> None:
        """Tokens whose text begins before ``end`` are certain; None: all of them."""
        while self._held and (end is None or self._held[0][0] < end):
            self._settled.append(self._held.popleft()[1])

    def take(self) -> tuple[TokenPlace, ...]:
        """The tokens that became certain since the last call."""
        settled, self._settled = tuple(self._settled), []
        return settled
