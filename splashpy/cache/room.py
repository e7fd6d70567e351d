# SPDX-License-Identifier: Apache-2.0
"""Memory for a text that takes up what is stored, as the cache asks for it."""

from __future__ import annotations

from typing import Protocol

from splashpy.models.state import TargetState


class Room(Protocol):
    """What one text may take; whoever counts memory decides."""

    def fits(self, rows: int) -> bool:
        """Whether a state of so many rows fits where nobody gives anything up."""
        ...

    def make_room(self, rows: int) -> bool:
        """Whether it fits once others gave up what only saves time."""
        ...

    def cover(self, state: TargetState, rows: int) -> None:
        """Claim what a state takes once it holds so many rows more.

        Raises:
            ShortageError: there is less.
        """
        ...


class _Boundless:
    def fits(self, rows: int) -> bool:
        return True

    def make_room(self, rows: int) -> bool:
        return True

    def cover(self, state: TargetState, rows: int) -> None:
        pass


BOUNDLESS: Room = _Boundless()
"""Memory that nobody counts."""
