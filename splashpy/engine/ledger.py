# SPDX-License-Identifier: Apache-2.0
"""What running texts may hold, and what stored states give up for them.

The plan gives both their share. Texts that outgrow theirs take it from the states of
earlier requests, which only save time; when nothing of that is left, memory is refused,
and a text has to be set aside (``lanes.py``). A request is let in only where it fits
into the texts' own share.

Belongs to the engine's thread.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import mlx.core as mx

from splashpy.cache.prefix import PrefixCache

_REFUSALS = ("[malloc]", "[metal::malloc]")  # how MLX begins when it gets no memory


def is_refusal(error: Exception) -> bool:
    """Whether MLX got no memory for an array; what was computed before is sound."""
    return isinstance(error, RuntimeError) and str(error).startswith(_REFUSALS)


class Ledger:
    """Rows of running texts against bytes of stored states.

    Args:
        rows: running texts may hold together; None where memory is not known.
        row_bytes: that one of them takes.
        budget: bytes everything may take; 0 where nobody knows.
        cache: states of earlier requests; None where none are kept.
        in_use: bytes that are taken now.
    """

    def __init__(
        self,
        rows: int | None = None,
        row_bytes: int = 0,
        *,
        budget: int = 0,
        cache: PrefixCache | None = None,
        in_use: Callable[[], int] = mx.get_active_memory,
    ):
        self._rows = sys.maxsize if rows is None else rows
        self._row_bytes, self._budget = row_bytes, budget
        self._cache, self._in_use = cache, in_use
        self._stored = cache.budget if cache else 0

    def fits(self, rows: int) -> bool:
        """Whether texts of so many rows keep within their own share."""
        return rows <= self._rows

    def allow(self, rows: int, *, new: int = 0) -> bool:
        """Make room for texts of so many rows; False: there is none to make.

        Args:
            rows: of all texts.
            new: of those, rows that take no memory yet.
        """
        over = max(rows - self._rows, 0) * self._row_bytes
        if over > self._stored or (rows > self._rows and not self._cache):
            return False
        if self._cache is not None and self._cache.budget != self._stored - over:
            self._cache.budget = self._stored - over
            self.shrink(self._cache.budget)
        excess = self._in_use() + new * self._row_bytes - self._budget
        if not self._budget or excess <= 0:
            return True
        return self.shrink(max(self._held - excess, 0)) >= excess

    def shrink(self, most: int) -> int:
        """Leave at most so many bytes of stored states; returns what was freed."""
        held = self._held
        if self._cache is None or held <= most:
            return 0
        self._cache.shrink(most)
        if self._held > most:  # only the newest is left, which is too large as well
            self._cache.clear()
        mx.clear_cache()
        return held - self._held

    def lower(self, rows: int) -> None:
        """Memory was refused although it seemed to suffice: expect no more of it."""
        self._rows = min(self._rows, rows)

    @property
    def _held(self) -> int:
        return self._cache.nbytes if self._cache else 0
