# SPDX-License-Identifier: Apache-2.0
"""What the engine's thread is at, so that others can tell working from hanging.

Work comes in units: a chunk of a prompt, a cycle of some texts. A unit that takes far
longer than any did, or a thread that is silent between two of them, will not come back:
whoever watches ends the process (``client/link.py``). A unit that is merely much slower
than usual is worth a line, since a kernel may stall at one width of a pass only.

Written by the engine's thread, read by any.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from statistics import median
from time import perf_counter
from typing import Literal

from splashpy.engine.request import EngineEvent, PrefillProgress, TokensCommitted

UNIT_SECONDS = 60.0
"""A unit may take so long in any case."""

SILENT_SECONDS = 30.0
"""Likewise what lies between two units."""

_TIMES_USUAL = 20.0  # a unit may take, where that is longer
_SLOW_SECONDS, _SLOW_TIMES = 5.0, 10.0
_REMEMBERED = 64  # units of a kind

Mode = Literal["reading", "writing"]
_Kind = tuple[Mode, int]  # and the texts that shared it


@dataclass(frozen=True, slots=True)
class Unit:
    """One unit that ended.

    Attributes:
        mode: a chunk of a prompt, or a cycle.
        texts: that shared it.
        width: rows of each.
        context: rows of the longest text.
    """

    mode: Mode
    texts: int
    width: int
    context: int

    @classmethod
    def of(
        cls, events: Iterable[EngineEvent], *, rows: int, context: int
    ) -> Unit | None:
        """The unit these events came of; None where nothing was computed.

        Args:
            events: of one step.
            rows: that were added to the texts.
            context: rows of the longest.
        """
        cycles = [e for e in events if isinstance(e, TokensCommitted) and e.cycle]
        if cycles:
            width = max(event.drafted for event in cycles) + 1
            return cls("writing", len({e.id for e in cycles}), width, context)
        if any(isinstance(event, PrefillProgress) for event in events) and rows > 0:
            return cls("reading", 1, rows, context)
        return None


class Pulse:
    """Watches one thread.

    Args:
        clock: seconds, the same on every thread.
    """

    def __init__(self, clock: Callable[[], float] = perf_counter):
        self._clock = clock
        self._at: tuple[Literal["rest", "between", "unit"], float] = ("rest", clock())
        self._times: dict[_Kind, deque[float]] = defaultdict(
            lambda: deque(maxlen=_REMEMBERED)
        )
        self._usual: dict[_Kind, float] = {}
        self._slowest = 0.0  # of the usual times

    def rest(self) -> None:
        """Nothing is to be done, or something that may take any time."""
        self._at = ("rest", self._clock())

    def beat(self) -> None:
        """Between two units, all is well."""
        self._at = ("between", self._clock())

    def begin(self) -> None:
        """A unit begins."""
        self._at = ("unit", self._clock())

    def end(self, unit: Unit | None) -> str:
        """A unit ended.

        Returns:
            What to tell about it; empty where it was as fast as usual.
        """
        seconds = self._clock() - self._at[1]
        self.beat()
        if unit is None:
            return ""
        kind = unit.mode, unit.texts
        usual = self._usual.get(kind)
        self._times[kind].append(seconds)
        self._usual[kind] = median(self._times[kind])
        self._slowest = max(self._usual.values())
        if usual is None or seconds <= max(_SLOW_SECONDS, _SLOW_TIMES * usual):
            return ""
        return (
            f"slow: {unit.mode} {unit.texts} text(s) took {seconds:.1f} s, usually "
            f"{usual:.2g} s; width {unit.width}, context {unit.context}"
        )

    def overdue(self) -> str:
        """Why the thread will not come back; empty where it may."""
        doing, since = self._at
        seconds = self._clock() - since
        if doing == "unit":
            most = max(UNIT_SECONDS, _TIMES_USUAL * self._slowest)
            if seconds > most:
                return (
                    f"a pass of the model has taken {seconds:.0f} seconds, and "
                    f"{most:.0f} are the most that is expected"
                )
        elif doing == "between" and seconds > SILENT_SECONDS:
            return f"its thread did nothing for {seconds:.0f} seconds"
        return ""
