# SPDX-License-Identifier: Apache-2.0
"""How often an answer that is being written is drawn.

A frame is followed by a multiple of its own time of rest, so drawing takes a bounded
share of a processor core whatever an answer looks like. Where the engine computes on
the processor itself, every millisecond of drawing is one less for decoding: there
frames are fewer.
"""

from __future__ import annotations

from dataclasses import dataclass

SHORTEST_SECONDS = 0.033
LONGEST_SECONDS = 0.25
REMOTE_SECONDS = 0.1  # over ssh more frames would only queue up
SHARED_SECONDS = 0.25
_PART = 3.0  # a frame takes a third of a core at most
_SHARED_PART = 40.0  # or a fortieth, where it is taken from decoding


@dataclass(slots=True)
class Frames:
    """When the next frame is due. Moments are seconds of any steady clock.

    Attributes:
        remote: the terminal is on another machine.
        shared: the engine computes on the same processor.
        unseen: the terminal is not in front of anybody.
    """

    remote: bool = False
    shared: bool = False
    unseen: bool = False
    _began_at: float = float("-inf")
    _cost: float = 0.0

    @property
    def seconds(self) -> float:
        """From the beginning of a frame to that of the next one."""
        if self.unseen:
            return LONGEST_SECONDS
        floor = REMOTE_SECONDS if self.remote else SHORTEST_SECONDS
        part = _SHARED_PART if self.shared else _PART
        floor = max(floor, SHARED_SECONDS) if self.shared else floor
        return min(max(part * self._cost, floor), LONGEST_SECONDS)

    def wait(self, now: float) -> float:
        """Seconds until the next frame may begin; 0 or less: now."""
        return self._began_at + self.seconds - now

    def rested(self, now: float) -> float:
        """Seconds since the last frame began."""
        return now - self._began_at

    def begin(self, now: float) -> None:
        """A frame begins."""
        self._began_at = now

    def end(self, now: float) -> None:
        """It is on the screen."""
        self._cost = now - self._began_at
