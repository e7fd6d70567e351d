# SPDX-License-Identifier: Apache-2.0
"""What every way to reach an engine host has in common."""

from __future__ import annotations

from types import TracebackType
from typing import Protocol, Self

from splashpy.protocol import Command, Event


class EngineClient(Protocol):
    """One conversation with one engine host; subclass it to share the block form.

    ``send`` may be called from any thread; one thread at a time calls ``receive``.
    """

    def send(self, command: Command) -> None:
        """Hand a command over; returns at once.

        Raises:
            EngineDiedError: the host is gone.
        """
        ...

    def receive(self, timeout: float | None = None) -> Event | None:
        """The next event; None when ``timeout`` seconds passed without one.

        Raises:
            EngineDiedError: the host ended without being asked to; its message
                carries the last lines of the engine log.
            EOFError: the host ended after ``close`` or ``Shutdown``.
        """
        ...

    def close(self, *, now: bool = False) -> None:
        """End the host: politely, or with ``now`` at once. May be called twice."""
        ...

    def __enter__(self) -> Self:
        """Closes the client on leaving the block."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Closes the client."""
        self.close()
