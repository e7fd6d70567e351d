# SPDX-License-Identifier: Apache-2.0
"""Weights that the system may not page out (``--wired weights``), and when they may be.

macOS compresses or pages out what was not used for a while, and the first answer after
a pause waits for it. Wired memory stays. But wiring most of a machine's memory can hang
it, so weights are wired only where they are at most 60 % of it and the computer is not
short of memory, and not for longer than that lasts. Ten minutes without a request end
it, too; the next request wires them again.

Belongs to the engine's thread.
"""

from __future__ import annotations

import platform
import sys
from collections.abc import Callable
from dataclasses import dataclass
from time import monotonic

import mlx.core as mx

from splashpy.kernels import metal
from splashpy.protocol import Pressure
from splashpy.units import format_bytes

IDLE_SECONDS = 600.0
MOST_SHARE = 0.6
"""Of the memory of the machine, which weights may be to be wired."""

BESIDE_BYTES = 1 << 30
"""Wired beside them: states of the texts that run."""

_OLDEST_MACOS = 15
NOWHERE = "memory can be wired on macOS 15 or newer with a Metal GPU only"


@dataclass(frozen=True, slots=True)
class Wirable:
    """A machine that can keep memory wired.

    Attributes:
        memory: its bytes.
        most: bytes that may be wired at a time.
        wire: keeps so many bytes wired from now on; 0 none.
    """

    memory: int
    most: int
    wire: Callable[[int], object]


def this_machine() -> Wirable | None:
    """The machine this runs on; None where it cannot keep memory wired."""
    if sys.platform != "darwin" or not metal.use_metal():
        return None
    if int(platform.mac_ver()[0].partition(".")[0] or 0) < _OLDEST_MACOS:
        return None
    info = mx.device_info()
    most = int(info.get("max_recommended_working_set_size", 0))
    return Wirable(int(info.get("memory_size", 0)), most, mx.set_wired_limit)


class WiredWeights:
    """Wires and releases the weights of one model at a time.

    Args:
        machine: where; None where that is impossible.
        clock: seconds.

    Attributes:
        nbytes: wired now.
        reason: why that is less than was asked for; empty where it is not.
    """

    def __init__(self, machine: Wirable | None, clock: Callable[[], float] = monotonic):
        self._machine, self._clock = machine, clock
        self._wanted = 0
        self._used_at = 0.0
        self.nbytes = 0
        self.reason = ""

    def begin(self, weights: int, level: Pressure) -> None:
        """Weights of so many bytes were loaded, and it was asked to wire them."""
        machine = self._machine
        if machine is None:
            self.reason = NOWHERE
            return
        wanted = weights + BESIDE_BYTES
        if weights > MOST_SHARE * machine.memory:
            self.reason = (
                f"weights of {format_bytes(weights)} are more than {MOST_SHARE:.0%} of "
                f"the {format_bytes(machine.memory)} of this machine"
            )
        elif wanted > machine.most:
            self.reason = (
                f"{format_bytes(wanted)} are more than the "
                f"{format_bytes(machine.most)} that may be wired here"
            )
        else:
            self._wanted = wanted
            self.use(level)

    def use(self, level: Pressure) -> None:
        """A request begins."""
        self._used_at = self._clock()
        if self._wanted and not self.nbytes:
            if level == "normal":
                self._set(self._wanted, "")
            else:
                self.reason = f"the memory of this computer is short: {level}"

    def look(self, level: Pressure, *, busy: bool) -> None:
        """Release what is wired, if it is time."""
        if busy:
            self._used_at = self._clock()
        if not self.nbytes:
            return
        if level != "normal":
            self._set(0, f"the memory of this computer is short: {level}")
        elif self._clock() - self._used_at >= IDLE_SECONDS:
            self._set(0, f"no request for {IDLE_SECONDS / 60:.0f} minutes")

    def end(self) -> None:
        """The model is given up."""
        if self.nbytes:
            self._set(0, "")
        self._wanted, self.reason = 0, ""

    def _set(self, nbytes: int, reason: str) -> None:
        assert self._machine is not None
        try:
            self._machine.wire(nbytes)
        except (RuntimeError, ValueError) as error:
            self._wanted, nbytes, reason = 0, self.nbytes, f"macOS refused: {error}"
        self.nbytes, self.reason = nbytes, reason
