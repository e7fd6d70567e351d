# SPDX-License-Identifier: Apache-2.0
"""When an engine that died is started again, and when no more.

The first time at once, then after 1, 2, 4 … seconds. An engine that dies over and over
would load its weights over and over; then a person has to look. One that dies right
after its start, and again, may do so of a kernel: then it goes on without.
"""

from __future__ import annotations

from collections import deque

MOST_DEATHS = 5
WITHIN_SECONDS = 600.0
FIRST_WAIT = 1.0
LONGEST_WAIT = 16.0
EARLY_UNITS = 3
"""An engine that did no more for any request died right after its start."""

_MOST_EARLY = 2  # in a row
SAFE_MODE = (
    "the engine died twice right after its start; it goes on without Metal kernels of "
    "its own, maybe slower. Restart the server to use them again, with "
    "SPLASHPY_KERNELS=-NAME without one of them; splashpy doctor --kernels tries each"
)


class Restarts:
    """Counts the deaths of an engine; those of long ago are forgotten.

    Attributes:
        count: deaths after which the engine was to be started again.
        early: the last two came right after the start.
    """

    def __init__(self) -> None:
        self.count = 0
        self.early = False
        self._in_a_row = 0
        self._deaths: deque[float] = deque()

    def after_death(self, now: float, units: int) -> float | None:
        """Note a death.

        Args:
            now: seconds of a steady clock.
            units: chunks and cycles the engine did for the request that got most.

        Returns:
            Seconds to wait before the next start; None: it is given up.
        """
        self._in_a_row = self._in_a_row + 1 if units <= EARLY_UNITS else 0
        self.early = self._in_a_row >= _MOST_EARLY
        self._deaths.append(now)
        while now - self._deaths[0] >= WITHIN_SECONDS:
            self._deaths.popleft()
        earlier = len(self._deaths) - 1
        if earlier + 1 >= MOST_DEATHS:
            return None
        self.count += 1
        return min(FIRST_WAIT * 2 ** (earlier - 1), LONGEST_WAIT) if earlier else 0.0
