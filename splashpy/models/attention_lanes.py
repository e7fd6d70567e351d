# SPDX-License-Identifier: Apache-2.0
"""What one attention layer remembers: keys and values of the rows it read.

A lane answers the calls mlx-lm's layers make on a cache (``offset``,
``update_and_fetch``, ``make_mask``, ``keys`` and ``values``). Rows always lie in time
order, so that a block of rows and single rows sum the same numbers in the same order.

Shapes: B batch (1), H key/value heads, L new rows, W window, d head dimension.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import mlx.core as mx
from mlx_lm.models.base import create_causal_mask

# Growth beyond the first reservation: geometric, so a long answer copies each row a
# bounded number of times instead of once every 256 tokens.
_GROWTH = 1.25
_GROWTH_ROWS = 256

SPARE_ROWS = 512
"""Rows a window slides over before what is visible is copied to the front."""

Mask = mx.array | str | None
Snapshot = Any
"""Whatever a lane needs to come back to where it was; never changed."""


class _Rows:
    """Two buffers of rows.

    Attributes:
        offset: rows written.
        keys: [B, H, rows, d], None before the first write.
        values: as ``keys``.
    """

    def __init__(self) -> None:
        self.offset = 0
        self.keys: mx.array | None = None
        self.values: mx.array | None = None

    @property
    def arrays(self) -> list[mx.array]:
        """The buffers, for evaluation."""
        return [a for a in (self.keys, self.values) if a is not None]

    @property
    def held(self) -> list[mx.array]:
        """Every array that takes memory, the reserved rows included."""
        return self.arrays


class LaneKV(_Rows):
    """Keys and values of one full-attention layer.

    Args:
        capacity: rows to reserve at the first write.
    """

    def __init__(self, capacity: int):
        super().__init__()
        self._capacity = capacity
        self._tight = False

    def update_and_fetch(
        self, keys: mx.array, values: mx.array
    ) -> tuple[mx.array, mx.array]:
        """Append rows and give back all of them.

        Args:
            keys: [B, H, L, d].
            values: [B, H, L, d].

        Returns:
            Keys and values of every row held, [B, H, offset, d].
        """
        self.keys, self.values = self._put((self.keys, self.values), (keys, values))
        end = self.offset
        return self.keys[..., :end, :], self.values[..., :end, :]

    def make_mask(
        self,
        rows: int,
        return_array: bool = False,  # noqa: FBT001, FBT002 - mlx-lm's call
        window_size: int | None = None,
    ) -> Mask:
        """The attention mask of the next ``rows`` rows, in mlx-lm's convention."""
        if window_size is not None or (return_array and rows > 1):
            return create_causal_mask(rows, self.offset, window_size=window_size)
        return None if rows == 1 else "causal"

    def reserved(self, more: int) -> int:
        """Rows the buffers have once ``more`` were appended to those held."""
        have = self.arrays[0].shape[2] if self.arrays else 0
        return self._size(have, self.offset + more)

    def grow_tightly(self) -> None:
        """From now on take no more rows ahead than up to the next step."""
        self._tight = True

    def reaches(self, length: int) -> bool:
        """Whether a roll back to ``length`` rows is exact: always."""
        return 0 <= length <= self.offset

    def roll_back(self, length: int) -> None:
        """Keep the first ``length`` rows.

        Raises:
            ValueError: the lane holds fewer rows.
        """
        if not self.reaches(length):
            raise ValueError(f"cannot keep {length} of {self.offset} rows")
        self.offset = length

    def snapshot(self) -> Snapshot:
        """A number: rows once written stay as they are until they are rolled back."""
        return self.offset

    def restore(self, snapshot: Snapshot) -> None:
        """Come back to a snapshot of this lane's own past."""
        self.roll_back(snapshot)

    def rows(self, start: int, end: int) -> list[mx.array]:
        """Copies of the rows from ``start`` to ``end``, one array per buffer."""
        return [mx.contiguous(a[..., start:end, :]) for a in self.arrays]

    def append(self, rows: Sequence[mx.array]) -> None:
        """Add rows another lane of this kind gave out.

        Args:
            rows: from :meth:`rows`; nothing where that lane was empty.
        """
        if rows:
            self.keys, self.values = self._put((self.keys, self.values), rows)

    def load(self, length: int, arrays: Sequence[mx.array]) -> None:
        """Never: rows are appended."""
        raise ValueError("rows belong to no snapshot")

    def branch(self, length: int, capacity: int, snapshot: Snapshot) -> Self:
        """Another lane that holds copies of the first ``length`` rows."""
        lane = type(self)(max(capacity, length))
        if length:
            lane.append([a[..., :length, :] for a in self.arrays])
        return lane

    @property
    def row_nbytes(self) -> int:
        """Bytes each further row takes."""
        return sum(a.nbytes // a.shape[2] for a in self.arrays)

    def _put(
        self, buffers: Sequence[mx.array | None], rows: Sequence[mx.array]
    ) -> list[mx.array]:
        """The buffers with new rows behind those held, which are counted."""
        start, end = self.offset, self.offset + rows[0].shape[2]
        held = [
            self._with_room(a, new, end) for a, new in zip(buffers, rows, strict=True)
        ]
        for buffer, new in zip(held, rows, strict=True):
            buffer[..., start:end, :] = new
        self.offset = end
        return held

    def _with_room(
        self, buffer: mx.array | None, rows: mx.array, needed: int
    ) -> mx.array:
        if buffer is None:
            return _empty(rows, self._size(0, needed))
        have = buffer.shape[2]
        if needed <= have:
            return buffer
        more = self._size(have, needed) - have
        return mx.concatenate([buffer, _empty(rows, more)], axis=2)

    def _size(self, have: int, needed: int) -> int:
        """Rows of a buffer that had ``have`` and holds ``needed`` now."""
        if needed <= have:
            return have
        if self._tight:
            return needed + -needed % _GROWTH_ROWS
        if not have:
            return max(self._capacity, needed)
        more = max(needed, int(have * _GROWTH)) - have
        return have + more + -more % _GROWTH_ROWS


class LaneRotKV(_Rows):
    """Keys and values a layer with a window can still see.

    The buffer holds the rows from some position on, in time order. When it is full,
    the rows in sight move to its front. Every row a roll back into the last block
    needs is still there, since a block is never longer than the spare rows.

    Args:
        window: rows a row sees, itself included.
        capacity: rows the sequence is expected to have; a short one reserves less
            than its window.
        spare: rows beyond the window.
    """

    def __init__(self, window: int, capacity: int, spare: int = SPARE_ROWS):
        super().__init__()
        self._window, self._spare = window, spare
        self._limit = window - 1 + spare
        self._capacity = min(capacity, self._limit)
        self._first = 0  # position of the buffer's first row

    def update_and_fetch(
        self, keys: mx.array, values: mx.array
    ) -> tuple[mx.array, mx.array]:
        """Append rows and give back those any of them can see.

        Args:
            keys: [B, H, L, d].
            values: [B, H, L, d].

        Returns:
            Keys and values, [B, H, min(offset, W - 1) + L, d] each.
        """
        seen = self._seen
        self._make_room(keys, values)
        assert self.keys is not None
        assert self.values is not None
        start = self.offset - self._first
        end = start + keys.shape[2]
        self.keys[..., start:end, :] = keys
        self.values[..., start:end, :] = values
        self.offset += keys.shape[2]
        first = start - seen
        return self.keys[..., first:end, :], self.values[..., first:end, :]

    def make_mask(
        self,
        rows: int,
        return_array: bool = False,  # noqa: FBT001, FBT002 - mlx-lm's call
        window_size: int | None = None,
    ) -> Mask:
        """The attention mask of the next ``rows`` rows over what they are given."""
        window = window_size or self._window
        seen = self._seen
        if seen + rows > window or (return_array and rows > 1):
            return create_causal_mask(rows, seen, window_size=window)
        return None if rows == 1 else "causal"

    def reaches(self, length: int) -> bool:
        """Whether the rows that ``length`` rows would see are all still held."""
        first = max(0, length - (self._window - 1))
        return self._first <= first and length <= self.offset

    def roll_back(self, length: int) -> None:
        """Keep the first ``length`` rows.

        Raises:
            ValueError: they were not written, or have slid out of the buffer.
        """
        if not self.reaches(length):
            raise ValueError(
                f"cannot keep {length} of {self.offset} rows: those before "
                f"{self._first} are gone"
            )
        self.offset = length

    def snapshot(self) -> Snapshot:
        """The position and a copy of the rows in sight."""
        return self._seen_from(self.offset)

    def rows(self, start: int, end: int) -> list[mx.array]:
        """Nothing: what a window sees belongs to one position, and to a snapshot."""
        return []

    def append(self, rows: Sequence[mx.array]) -> None:
        """Nothing, as :meth:`rows`."""

    def load(self, length: int, arrays: Sequence[mx.array]) -> None:
        """Stand at ``length`` with the keys and values in sight there."""
        self.restore((length, *arrays))

    def branch(self, length: int, capacity: int, snapshot: Snapshot) -> LaneRotKV:
        """Another lane that has read ``length`` rows.

        Args:
            length: rows it holds.
            capacity: rows its sequence is expected to have.
            snapshot: taken at that length; None where the rows are still here.
        """
        lane = LaneRotKV(self._window, capacity, self._spare)
        lane.restore(snapshot or self._seen_from(length))
        return lane

    def restore(self, snapshot: Snapshot) -> None:
        """Come back to a snapshot, whatever was written since."""
        self.offset, keys, values = snapshot
        self._first = self.offset - (0 if keys is None else keys.shape[2])
        self.keys, self.values = keys, values
        if keys is not None:  # the snapshot itself is never written to
            self._move(keys, values, self._limit)

    row_nbytes = 0
    """A window does not grow with the text."""

    @property
    def _seen(self) -> int:
        """Earlier rows the next row sees."""
        return min(self.offset, self._window - 1)

    def _seen_from(self, position: int) -> Snapshot:
        if self.keys is None or self.values is None or not position:
            return 0, None, None
        start = max(0, position - (self._window - 1)) - self._first
        end = position - self._first
        rows = [mx.contiguous(a[..., start:end, :]) for a in (self.keys, self.values)]
        return position, *rows

    def _make_room(self, keys: mx.array, values: mx.array) -> None:
        """Let new rows fit behind those in sight, and give a long chunk's room back."""
        new, seen = keys.shape[2], self._seen
        if self.keys is None or self.values is None:
            size = max(self._capacity, new)
            self.keys, self.values = _empty(keys, size), _empty(values, size)
            return
        size, held = self.keys.shape[2], self.offset - self._first
        too_small = held + new > size
        too_large = size > self._limit >= seen + new
        if too_small or too_large:
            start = held - seen
            self._first += start
            self._move(
                self.keys[..., start:held, :],
                self.values[..., start:held, :],
                max(self._limit, seen + new),
            )

    def _move(self, keys: mx.array, values: mx.array, size: int) -> None:
        """Put these rows at the front of buffers of ``size`` rows."""
        room = size - keys.shape[2]
        self.keys = mx.concatenate([keys, _empty(keys, room)], axis=2)
        self.values = mx.concatenate([values, _empty(values, room)], axis=2)


class LaneList:
    """The lanes of a layer that keeps more than one, such as an indexer's keys.

    Args:
        lanes: each of the same length at all times.
    """

    def __init__(self, *lanes: LaneKV):
        self._lanes = lanes

    def __getitem__(self, index: int) -> LaneKV:
        return self._lanes[index]

    @property
    def offset(self) -> int:
        """Rows held."""
        return self._lanes[0].offset

    def reserved(self, more: int) -> int:
        """Rows the buffers have once ``more`` were appended to those held."""
        return self._lanes[0].reserved(more)

    def grow_tightly(self) -> None:
        """From now on take no more rows ahead than up to the next step."""
        for lane in self._lanes:
            lane.grow_tightly()

    def reaches(self, length: int) -> bool:
        """Whether every lane can roll back to ``length`` rows."""
        return all(lane.reaches(length) for lane in self._lanes)

    def roll_back(self, length: int) -> None:
        """Keep the first ``length`` rows of every lane.

        Raises:
            ValueError: a lane holds fewer rows.
        """
        for lane in self._lanes:
            lane.roll_back(length)

    def snapshot(self) -> Snapshot:
        """The snapshots of all lanes."""
        return tuple(lane.snapshot() for lane in self._lanes)

    def restore(self, snapshot: Snapshot) -> None:
        """Restore every lane."""
        for lane, part in zip(self._lanes, snapshot, strict=True):
            lane.restore(part)

    def rows(self, start: int, end: int) -> list[mx.array]:
        """Copies of the rows from ``start`` to ``end`` of every lane."""
        return [array for lane in self._lanes for array in lane.rows(start, end)]

    def append(self, rows: Sequence[mx.array]) -> None:
        """Add rows from :meth:`rows` to every lane."""
        size = len(rows) // len(self._lanes)
        for index, lane in enumerate(self._lanes):
            lane.append(rows[index * size : (index + 1) * size])

    def load(self, length: int, arrays: Sequence[mx.array]) -> None:
        """Never: rows are appended."""
        raise ValueError("rows belong to no snapshot")

    def branch(self, length: int, capacity: int, snapshot: Snapshot) -> LaneList:
        """Other lanes that hold copies of the first ``length`` rows."""
        return LaneList(*(a.branch(length, capacity, None) for a in self._lanes))

    @property
    def arrays(self) -> list[mx.array]:
        """Every buffer, for evaluation."""
        return [array for lane in self._lanes for array in lane.arrays]

    @property
    def held(self) -> list[mx.array]:
        """Every array that takes memory."""
        return self.arrays

    @property
    def row_nbytes(self) -> int:
        """Bytes each further row takes."""
        return sum(lane.row_nbytes for lane in self._lanes)


def _empty(like: mx.array, rows: int) -> mx.array:
    batch, heads, _, width = like.shape
    return mx.zeros((batch, heads, rows, width), dtype=like.dtype)
