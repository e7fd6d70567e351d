# SPDX-License-Identifier: Apache-2.0
"""Keys and values of full attention in 8 bits: half the memory, rounded rows.

A row is rounded once, when it is written, in groups of 64 channels with a scale and a
bias each. No row's numbers depend on another's, so a block leaves the same bits as its
rows one by one, and a roll back stays a change of one number.

Attention reads the rows as numbers of the layer's own type: those of one layer at a
time exist in full width while it computes, unless a kernel reads them packed.

Shapes: B batch (1), H key/value heads, L new rows, d head dimension.
"""

from __future__ import annotations

from collections.abc import Sequence

import mlx.core as mx

from splashpy.kernels.attention_rows import PackedHeads
from splashpy.models.attention_lanes import LaneKV

GROUP = 64
"""Channels that share a scale and a bias."""

_BITS = 8
_PARTS = 3  # packed channels, scales, biases


class LaneQ8(LaneKV):
    """Keys and values of one full-attention layer in 8 bits.

    A layer whose heads do not divide into groups keeps its rows as they are.

    Args:
        capacity: rows to reserve at the first write.
    """

    def __init__(self, capacity: int):
        super().__init__(capacity)
        self._buffers: list[mx.array] = []

    def update_and_fetch(
        self, keys: mx.array, values: mx.array
    ) -> tuple[mx.array, mx.array]:
        """As :meth:`LaneKV.update_and_fetch`, of rounded rows."""
        if keys.shape[-1] % GROUP or values.shape[-1] % GROUP:
            return super().update_and_fetch(keys, values)
        self.append([*_rounded(keys), *_rounded(values)])
        parts = [buffer[..., : self.offset, :] for buffer in self._buffers]
        return _numbers(parts[:_PARTS]), _numbers(parts[_PARTS:])

    def append(self, rows: Sequence[mx.array]) -> None:
        """Add rounded rows, or rows as they are where the layer keeps those."""
        if len(rows) == 2 * _PARTS:
            self._buffers = self._put(self._buffers or [None] * len(rows), rows)
        else:
            super().append(rows)

    @property
    def rounds(self) -> bool:
        """Whether the rows read so far are kept in 8 bits."""
        return bool(self._buffers)

    @property
    def packed(self) -> tuple[PackedHeads, PackedHeads]:
        """Keys and values of every row held, as they lie in memory."""
        parts = [buffer[..., : self.offset, :] for buffer in self._buffers]
        return PackedHeads(*parts[:_PARTS]), PackedHeads(*parts[_PARTS:])

    @property
    def arrays(self) -> list[mx.array]:
        """The buffers, for evaluation."""
        return self._buffers or super().arrays


def _rounded(rows: mx.array) -> tuple[mx.array, mx.array, mx.array]:
    packed, scales, biases = mx.quantize(rows, group_size=GROUP, bits=_BITS)
    return packed, scales, biases


def _numbers(parts: list[mx.array]) -> mx.array:
    packed, scales, biases = parts
    return mx.dequantize(packed, scales, biases, group_size=GROUP, bits=_BITS)
