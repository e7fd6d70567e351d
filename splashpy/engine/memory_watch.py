# SPDX-License-Identifier: Apache-2.0
"""Memory while a model works: limits, what is in use, and what is given back.

MLX keeps buffers it has freed, without a limit of its own that would matter; it is
given one. When the computer runs short of memory, states of earlier requests go first:
they only save time. Under a warning half of them go, and not again for two minutes;
when it is critical all of them go. Where that does not help, texts have to be set
aside, one at every look. Before the computer warns, they go where others leave little
memory (``headroom.py``), and do not grow meanwhile.

Belongs to the engine's thread.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from time import monotonic

import mlx.core as mx

from splashpy.cache.prefix import PrefixCache
from splashpy.engine.headroom import Watermarks, headroom
from splashpy.engine.memory_ledger import MemoryLedger
from splashpy.engine.pressure import pressure
from splashpy.engine.wired import WiredWeights, this_machine
from splashpy.kernels import metal
from splashpy.protocol import Log, Memory, Pressure, Shed
from splashpy.units import format_bytes

LOOK_SECONDS = 0.5  # between two looks at the computer
PAUSE_SECONDS = 120.0  # before the same level is acted on again
_FREED_MOST, _FREED_SHARE = 2 << 30, 0.05  # of the budget, kept for reuse by MLX
_LEVELS: tuple[Pressure, ...] = ("normal", "warn", "critical")


class MemoryWatch:
    """Looks now and then, and gives back what the computer needs.

    Args:
        emit: receives ``Memory``, and ``Shed`` and ``Log`` for what was given back.
        level: how short of memory the computer is.
        clock: seconds.
        wired: wires weights where that is asked for.
        room: bytes the computer has left; None where it does not say.

    Attributes:
        ledger: of the loaded model.
        wired: as given.
    """

    def __init__(
        self,
        emit: Callable[[Memory | Shed | Log], None],
        level: Callable[[], Pressure] = pressure,
        clock: Callable[[], float] = monotonic,
        wired: WiredWeights | None = None,
        room: Callable[[], int | None] = headroom,
    ):
        self._emit, self._level, self._clock = emit, level, clock
        self._room, self._marks = room, Watermarks()
        self.ledger = MemoryLedger()
        self.wired = wired or WiredWeights(this_machine(), clock)
        self._looked_at = -LOOK_SECONDS
        self._acted: tuple[Pressure, float] = ("normal", -PAUSE_SECONDS)
        self._seen: Pressure = "normal"

    def limit(self, budget: int) -> None:
        """Let MLX keep no more freed buffers than a small part of a budget.

        Args:
            budget: bytes everything may take; 0 where nobody knows.
        """
        if budget and metal.use_metal():
            mx.set_cache_limit(min(_FREED_MOST, int(_FREED_SHARE * budget)))

    @property
    def level(self) -> Pressure:
        """How short of memory the computer was at the last look."""
        return self._seen

    def wire(self, weights: int) -> None:
        """Let weights of so many bytes stay in physical memory, where they may."""
        self.wired.begin(weights, self._level())
        if self.wired.reason:
            text = f"--wired weights has no effect: {self.wired.reason}"
            self._emit(Log(level="warn", text=text))

    def begin(self) -> None:
        """A request begins."""
        self.wired.use(self._seen)

    def look(self, cache: PrefixCache | None, *, busy: bool = True) -> bool:
        """Look at the computer, if it is time, and act; called between cycles.

        Args:
            cache: of states of earlier requests.
            busy: a request runs.

        Returns:
            Whether it needs more than stored states: a text has to be set aside.
        """
        now = self._clock()
        if now - self._looked_at < LOOK_SECONDS:
            return False
        self._looked_at = now
        self._seen = self._level()
        wired = self.wired.nbytes
        self.wired.look(self._seen, busy=busy)
        if self.wired.nbytes != wired:
            self.tell(cache)
        if cache is not None:
            self._bound(cache, now)
        acted, at = self._acted
        worse = _LEVELS.index(self._seen) > _LEVELS.index(acted)
        critical = self._seen == "critical"
        if critical and not worse and not (cache and cache.nbytes):
            return True
        if self._seen == "normal":
            return False
        if worse or critical or now - at >= PAUSE_SECONDS:
            self._acted = (self._seen, now)
            self._give_back(cache)
        return False

    def tell(self, cache: PrefixCache | None) -> None:
        """Say what is in use now."""
        self._emit(
            Memory(
                active=mx.get_active_memory(),
                peak=mx.get_peak_memory(),
                cache=mx.get_cache_memory(),
                kv_tokens=cache.num_tokens if cache else 0,
                pressure=self._seen,
                ledger=self.ledger.report(),
                wired=self.wired.nbytes,
                not_wired=self.wired.reason,
            )
        )

    def _bound(self, cache: PrefixCache, now: float) -> None:
        """Let stored states go and not grow while the computer has little left."""
        missing = self._marks.see(self._room(), now)
        if not self._marks.short:
            cache.ceiling = sys.maxsize
            return
        if cache.ceiling == sys.maxsize:  # what running texts hold is stored later
            cache.ceiling = cache.nbytes + self.ledger.held["lanes"]
        if missing:
            freed = _shrunk(cache, max(cache.nbytes - missing, 1))  # the newest stays
            cache.ceiling -= freed
            self._tell_shed(cache, freed, "little is left")

    def _give_back(self, cache: PrefixCache | None) -> None:
        freed = 0
        if cache is not None:
            most = 0 if self._seen == "critical" else cache.nbytes // 2
            freed = _shrunk(cache, most)
        self._tell_shed(cache, freed, self._seen)

    def _tell_shed(self, cache: PrefixCache | None, freed: int, why: str) -> None:
        mx.clear_cache()
        if not freed:
            return
        self._emit(Shed(level=self._seen, action="states", held=freed))
        text = (
            f"memory of this computer: {why}; {format_bytes(freed)} of "
            "earlier requests' states given back"
        )
        self._emit(Log(level="warn", text=text))
        self.tell(cache)


def _shrunk(cache: PrefixCache, most: int) -> int:
    """Let a cache hold so many bytes at most; bytes that were given up."""
    held = cache.nbytes
    cache.shrink(most)
    return held - cache.nbytes
