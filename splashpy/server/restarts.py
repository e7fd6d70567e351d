# SPDX-License-Identifier: Apache-2.0
"""When an engine that died is started again, and when no more.

The first time at once, then after 1, 2, 4 … seconds. An engine that dies over and over
would load its weights over and over; then a person has to look.
"""

from __future__ import annotations

from collections import deque

MOST_DEATHS = 5
WITHIN_SECONDS = 600.0
FIRST_WAIT = 1.0
LONGEST_WAIT = 16.0


class Restarts:
    """Counts the deaths of an engine; those of long ago are forgotten.

    Attributes:
        count: deaths after which the engine was to be started again.
    """

    def __init__(self) -> None:
        self.count = 0
        self._deaths: deque[float] = deque()

    def after_death(self, now: float) -> float | None:
        """Note a death.

        Args:
            now: seconds of a steady clock.

        Returns:
            Seconds to wait before the next start; None: it is given up.
        """
        self._deaths.append(now)
        while now - self._deaths[0] >= WITHIN_SECONDS:
            self._deaths.popleft()
        earlier = len(self._deaths) - 1
        if earlier + 1 >= MOST_DEATHS:
            return None
        self.count += 1
        return min(FIRST_WAIT * 2 ** (earlier - 1), LONGEST_WAIT) if earlier else 0.0
