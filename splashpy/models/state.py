# SPDX-License-Identifier: Apache-2.0
"""What a target remembers of one sequence: append, roll back, measure.

A *lane* is the memory of one layer. It answers the calls mlx-lm's layers make on a
cache (``offset``, ``update_and_fetch``, ``make_mask``) and adds what speculation
needs: a capacity known in advance and an exact roll back.

Shapes: B batch (1), H key/value heads, L new rows, d head dimension.
"""

from __future__ import annotations

from collections.abc import Sequence

import mlx.core as mx
from mlx_lm.models.base import create_causal_mask

# Growth beyond the first reservation: geometric, so a long answer copies each row a
# bounded number of times instead of once every 256 tokens.
_GROWTH = 1.25
_GROWTH_ROWS = 256


class LaneKV:
    """Keys and values of one full-attention layer.

    Args:
        capacity: rows to reserve at the first write.
    """

    def __init__(self, capacity: int):
        self.offset = 0
        self._capacity = capacity
        self._keys: mx.array | None = None
        self._values: mx.array | None = None

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
        start, end = self.offset, self.offset + keys.shape[2]
        all_keys = self._with_room(self._keys, keys, end)
        all_values = self._with_room(self._values, values, end)
        all_keys[..., start:end, :] = keys
        all_values[..., start:end, :] = values
        self._keys, self._values = all_keys, all_values
        self.offset = end
        return all_keys[..., :end, :], all_values[..., :end, :]

    def make_mask(
        self,
        rows: int,
        return_array: bool = False,  # noqa: FBT001, FBT002 - mlx-lm's call
        window_size: int | None = None,
    ) -> mx.array | str | None:
        """The attention mask of the next ``rows`` rows, in mlx-lm's convention."""
        if window_size is None and not return_array:
            return None if rows == 1 else "causal"
        return create_causal_mask(rows, self.offset, window_size=window_size)

    def roll_back(self, length: int) -> None:
        """Keep the first ``length`` rows.

        Raises:
            ValueError: the lane holds fewer rows.
        """
        if not 0 <= length <= self.offset:
            raise ValueError(f"cannot keep {length} of {self.offset} rows")
        self.offset = length

    @property
    def arrays(self) -> list[mx.array]:
        """The buffers, for evaluation."""
        return [a for a in (self._keys, self._values) if a is not None]

    @property
    def nbytes(self) -> int:
        """Bytes held, the reserved rows included."""
        return sum(a.nbytes for a in self.arrays)

    def _with_room(
        self, buffer: mx.array | None, rows: mx.array, needed: int
    ) -> mx.array:
        batch, heads, _, width = rows.shape
        if buffer is None:
            capacity = max(self._capacity, needed)
            return mx.zeros((batch, heads, capacity, width), dtype=rows.dtype)
        have = buffer.shape[2]
        if needed <= have:
            return buffer
        more = max(needed, int(have * _GROWTH)) - have
        more += -more % _GROWTH_ROWS
        room = mx.zeros((batch, heads, more, width), dtype=rows.dtype)
        return mx.concatenate([buffer, room], axis=2)


class TargetState:
    """The lanes of all layers of one sequence, always of one length."""

    def __init__(self, lanes: Sequence[LaneKV]):
        self.lanes = list(lanes)

    @property
    def length(self) -> int:
        """Rows held, the same in every lane."""
        return self.lanes[0].offset

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return sum(lane.nbytes for lane in self.lanes)

    @property
    def arrays(self) -> list[mx.array]:
        """Every buffer; evaluating them completes a prefill chunk."""
        return [array for lane in self.lanes for array in lane.arrays]

    def roll_back(self, length: int) -> None:
        """Forget every row from ``length`` on.

        Raises:
            ValueError: fewer than ``length`` rows are held.
        """
        for lane in self.lanes:
            lane.roll_back(length)
