# SPDX-License-Identifier: Apache-2.0
"""Who holds how much memory, and whether more of it may be taken.

The plan (``memory.py``) says what fits together; the ledger holds requests to it while
they run. Whoever is about to take much asks here first, and what cannot be granted is
refused before anything was allocated::

    charged = max(sum of all claims, what MLX holds)
    granted   where charged + asked <= budget

Before it refuses, others are asked to give back, the cheapest loss first
(:data:`SOURCES`). After that a text has to be set aside (``lanes.py``). Nothing here
knows arrays. Belongs to the engine's thread.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, get_args

from splashpy.errors import CapacityError, ShortageError
from splashpy.protocol import Held, Ledger
from splashpy.units import format_bytes

Category = Literal["weights", "lanes", "runs", "states", "staging", "scratch"]
"""What memory is for.

``weights``: target and drafter. ``lanes``: texts that are read or written. ``runs``:
rows of earlier requests. ``states``: places to come back to, where rows cannot be cut.
``staging``: copies on their way to disk. ``scratch``: what passes compute.
"""

Source = Literal["buffers", "staged", "stored"]
"""Who may give memory back.

``buffers``: MLX keeps what it has freed. ``staged``: copies that are being written,
which takes a moment. ``stored``: states of earlier requests, which only save time.
"""

CATEGORIES: tuple[Category, ...] = get_args(Category)
SOURCES: tuple[Source, ...] = get_args(Source)
"""In the order they are asked."""

_SPARE: tuple[Category, ...] = ("runs", "states", "staging")  # may be given back
_FIX = (
    "ask with a shorter prompt, or for a shorter answer",
    "--kv q8, or a larger --max-memory",
)
_LASTING: tuple[Category, ...] = ("weights", "scratch")
_REFUSALS = ("[malloc]", "[metal::malloc]")  # how MLX begins when it gets no memory


def is_refusal(error: Exception) -> bool:
    """Whether MLX got no memory for an array; what was computed before is sound."""
    return isinstance(error, RuntimeError) and str(error).startswith(_REFUSALS)


class Claim:
    """Bytes one owner has of the budget; none after ``release``.

    Made by :meth:`MemoryLedger.claim` and :meth:`MemoryLedger.reserve`.
    """

    def __init__(self, ledger: MemoryLedger, category: Category):
        self._ledger = ledger
        self._category: Category = category
        self._nbytes = 0

    @property
    def nbytes(self) -> int:
        """What is claimed now."""
        return self._nbytes

    def cover(self, nbytes: int, why: str) -> None:
        """Claim at least so much, and ask for what that is more than now.

        Args:
            nbytes: in all.
            why: what it is for, as in "8K tokens of context".

        Raises:
            ShortageError: there is less; the claim stays as it was.
        """
        if nbytes > self._nbytes:
            self._ledger.ask(nbytes - self._nbytes, why)
            self.hold(nbytes)

    def hold(self, nbytes: int) -> None:
        """Claim exactly so much, whether or not there is room: it exists already."""
        if nbytes < 0:
            raise ValueError(f"nobody holds {nbytes} bytes")
        self._ledger.move(self._category, nbytes - self._nbytes)
        self._nbytes = nbytes

    def release(self) -> None:
        """Claim nothing; may be called twice."""
        self.hold(0)


@dataclass(slots=True)
class _Refusals:
    count: int = 0
    latest: str = ""


class MemoryLedger:
    """The memory of one loaded model.

    Args:
        budget: bytes everything may take; 0 where nobody knows, which refuses nothing.
        in_use: bytes that are really allocated.
        tell: learns who gave how many bytes back.
    """

    def __init__(
        self,
        budget: int = 0,
        in_use: Callable[[], int] = lambda: 0,
        tell: Callable[[Source, int], None] = lambda source, nbytes: None,
    ):
        self.budget = budget
        self._in_use = in_use
        self._claimed = dict.fromkeys(CATEGORIES, 0)
        self._measured: dict[Category, Callable[[], int]] = {}
        self._givers: dict[Source, Callable[[int], int]] = {}
        self._refusals = _Refusals()
        self._tell = tell

    @property
    def held(self) -> dict[Category, int]:
        """Bytes of every category."""
        return {
            each: self._claimed[each]
            + (self._measured[each]() if each in self._measured else 0)
            for each in CATEGORIES
        }

    @property
    def charged(self) -> int:
        """Bytes that count as taken."""
        return max(sum(self.held.values()), self._in_use())

    def claim(self, category: Category, nbytes: int = 0) -> Claim:
        """A claim on what exists already, or on nothing yet; never refused."""
        claim = Claim(self, category)
        claim.hold(nbytes)
        return claim

    def reserve(self, nbytes: int, why: str, category: Category = "scratch") -> Claim:
        """A claim on memory that is about to be taken.

        Args:
            nbytes: of it.
            why: what it is for.
            category: likewise.

        Raises:
            ShortageError: there is less, whoever gives back what they can.
        """
        claim = Claim(self, category)
        claim.cover(nbytes, why)
        return claim

    def fits(self, nbytes: int) -> bool:
        """Whether so much would be granted without anybody giving something back."""
        return not self.budget or self.charged + nbytes <= self.budget

    def fits_beside(self, nbytes: int) -> bool:
        """The same while no pass computes: what passes take is free then."""
        held = self.held
        charged = max(sum(held.values()) - held["scratch"], self._in_use())
        return not self.budget or charged + nbytes <= self.budget

    def measure(self, category: Category, nbytes: Callable[[], int]) -> None:
        """Let a category also hold what its owner counts by itself."""
        self._measured[category] = nbytes

    def offer(self, source: Source, give: Callable[[int], int]) -> None:
        """Let somebody be asked before anything is refused.

        Args:
            source: who that is; a later offer replaces an earlier one.
            give: gets the bytes that are missing, gives back what it can of them or
                more, and returns how much that was. It never asks for memory itself.
        """
        self._givers[source] = give

    def ask(self, nbytes: int, why: str) -> None:
        """Return if so much more may be taken, after others gave back where needed.

        Raises:
            ShortageError: it may not; where nothing could help, nothing was given back.
        """
        held = self.held
        hopeless = self._missing(nbytes) > sum(held[each] for each in _SPARE)
        if hopeless or not self._collect(nbytes):
            raise self._refusal(nbytes, why)

    def make_room(self, nbytes: int) -> bool:
        """Whether so much more would be granted now, after others gave back.

        Nothing is given back, and no refusal counted, where that would not suffice.
        """
        spare = (self._measured.get(each, lambda: 0)() for each in _SPARE)
        return self._missing(nbytes) <= sum(spare) and self._collect(nbytes)

    def expect(self, nbytes: int, why: str) -> None:
        """Return if so much could be granted to a text that is alone.

        What other texts take, what was stored, and what is in use beyond all claims
        may go until then.

        Args:
            nbytes: of it.
            why: what it is for.

        Raises:
            CapacityError: it never could.
        """
        held = self.held
        most = self.budget - sum(held[each] for each in _LASTING)
        if self.budget and nbytes > most:
            raise CapacityError(
                f"{why}: needs {format_bytes(nbytes)}, {format_bytes(max(most, 0))} "
                "are left beside the model",
                fix=_FIX,
            )

    def drop_stored(self) -> int:
        """Give up all states of earlier requests; bytes of them."""
        return self._ask_back("stored", sys.maxsize)

    def move(self, category: Category, change: int) -> None:
        """Count a change of a claim; claims do this themselves."""
        self._claimed[category] += change

    def report(self) -> Ledger:
        """Everything, in the protocol's words."""
        return Ledger(
            budget=self.budget,
            held=Held(**self.held),
            refused=self._refusals.count,
            refusal=self._refusals.latest,
        )

    def _collect(self, nbytes: int) -> bool:
        """Let others give back what is missing; whether it suffices."""
        for source in SOURCES:
            if (missing := self._missing(nbytes)) > 0:
                self._ask_back(source, missing)
        return self._missing(nbytes) <= 0

    def _ask_back(self, source: Source, missing: int) -> int:
        if source not in self._givers:
            return 0
        freed = self._givers[source](missing)
        self._tell(source, freed)
        return freed

    def _missing(self, nbytes: int) -> int:
        return self.charged + nbytes - self.budget if self.budget else 0

    def _refusal(self, nbytes: int, why: str) -> ShortageError:
        free = max(self.budget - self.charged, 0)
        held = [
            f"{name} {format_bytes(size)}" for name, size in self.held.items() if size
        ]
        error = ShortageError(
            f"{why}: needs {format_bytes(nbytes)} more, {format_bytes(free)} are free",
            why=f"{' + '.join(held)} of {format_bytes(self.budget)}",
            fix=_FIX,
        )
        self._refusals.count += 1
        self._refusals.latest = error.message
        return error
