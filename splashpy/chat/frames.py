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
LONGEST_SECONDS = 0.25  # also where drawing is taken from decoding
REMOTE_SECONDS = 0.1  # over ssh more frames would only queue up
_SILENT_SECONDS = 0.25  # without a frame, after which only the time is drawn
_SHARED_SILENT_SECONDS = 1.0
_PART = 3.0  # a frame takes a third of a core at most


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
    _ticked_at: float = float("-inf")
    _cost: float = 0.0

    @property
    def seconds(self) -> float:
        """From the beginning of a frame to that of the next one."""
        if self.unseen or self.shared:
            return LONGEST_SECONDS
        floor = REMOTE_SECONDS if self.remote else SHORTEST_SECONDS
        return min(max(_PART * self._cost, floor), LONGEST_SECONDS)

    def wait(self, now: float) -> float:
        """Seconds until the next frame may begin; 0 or less: now."""
        return self._began_at + self.seconds - now

    def tick(self, now: float) -> bool:
        """Whether to draw the time, as nothing was drawn for too long.

        It delays no frame.
        """
        silence = _SHARED_SILENT_SECONDS if self.shared else _SILENT_SECONDS
        if now - max(self._began_at, self._ticked_at) < silence:
            return False
        self._ticked_at = now
        return True

    def begin(self, now: float) -> None:
        """A frame begins."""
        self._began_at = now

    def end(self, now: float) -> None:
        """It is on the screen."""
        self._cost = now - self._began_at
