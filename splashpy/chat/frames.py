# SPDX-License-Identifier: Apache-2.0
"""How often an answer that is being written is drawn.

A frame is followed by a multiple of its own time of rest, so drawing takes a bounded
share of a processor core whatever an answer looks like: a third, or a hundredth where
the engine computes on the processor itself and every millisecond of drawing is one
less for decoding.
"""

from __future__ import annotations

from dataclasses import dataclass

SHORTEST_SECONDS = 0.033
LONGEST_SECONDS = 0.25
SHARED_SECONDS = 0.5  # the longest where drawing is taken from decoding
REMOTE_SECONDS = 0.1  # over ssh more frames would only queue up
_SILENT_SECONDS = 0.25
_SHARED_SILENT_SECONDS = 1.0
_PART = 3.0  # a frame takes a third of a core at most
_SHARED_PART = 100.0
_STREAK_SECONDS = 1.0  # frames further apart tell nothing of what one costs


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
    _used: float = 0.0
    _cost: float = 0.0

    @property
    def seconds(self) -> float:
        """From the beginning of a frame to that of the next one."""
        longest = SHARED_SECONDS if self.shared else LONGEST_SECONDS
        if self.unseen:
            return longest
        slow = self.remote or self.shared
        floor = REMOTE_SECONDS if slow else SHORTEST_SECONDS
        part = _SHARED_PART if self.shared else _PART
        return min(max(part * self._cost, floor), longest)

    @property
    def silence(self) -> float:
        """Seconds without a frame after which the time is drawn all the same."""
        return _SHARED_SILENT_SECONDS if self.shared else _SILENT_SECONDS

    def wait(self, now: float) -> float:
        """Seconds until the next frame may begin; 0 or less: now."""
        return self._began_at + self.seconds - now

    def tick(self, now: float) -> bool:
        """Whether to draw the time, as nothing was drawn for too long.

        It delays no frame.
        """
        # Whoever asks every ``silence`` seconds may be a little early.
        if now - max(self._began_at, self._ticked_at) < 0.9 * self.silence:
            return False
        self._ticked_at = now
        return True

    def begin(self, now: float, used: float) -> None:
        """A frame begins.

        A toolkit draws some time after it was told what to draw, in parts, so what a
        frame costs is known when the next one begins.

        Args:
            now: the moment.
            used: processor seconds of the thread that draws, since any fixed moment.
        """
        if now - self._began_at < _STREAK_SECONDS:
            self._cost = (self._cost + used - self._used) / 2
        self._began_at, self._used = now, used
