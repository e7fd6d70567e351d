# SPDX-License-Identifier: Apache-2.0
"""Gated DeltaNet layers of Qwen3.5 whose blocks run as kernels.

Such a layer never computes the state after a block unless something asks for it. What
its cache is given is an array that would be that state if it were evaluated, and the
layer remembers what it would be made from: the state before the block, the block's
rows, and how many of them count. The next block starts from these; a roll back inside
the block only changes the number. Whatever else reads the cache, such as a snapshot or
a chunk of a prompt, evaluates the array.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import mlx.core as mx

from splashpy.kernels import gate
from splashpy.kernels.gated_delta import (
    MOST_ROWS,
    Decay,
    Geometry,
    Pending,
    Rows,
    prework,
    replay,
    verify,
)


@dataclass(frozen=True, slots=True)
class BlockCall:
    """What a block left behind.

    Attributes:
        window: [W - 1 + T, C], inputs of the convolution.
        before: [Hv, Dv, Dk], the state before the block.
        rows: of the block.
    """

    window: mx.array
    before: mx.array
    rows: Rows


class DeltaRows:
    """Runs the blocks of one layer.

    Args:
        layer: a Gated DeltaNet of Qwen3.5.
    """

    def __init__(self, layer: Any):
        self._layer = layer
        self._heads = Geometry(
            layer.num_k_heads, layer.num_v_heads, layer.head_k_dim, layer.head_v_dim
        )
        self._decay = Decay(layer.A_log, layer.dt_bias)
        self._given: tuple[mx.array, Pending] | None = None

    def takes(self, inputs: mx.array, mask: Any, cache: Any) -> bool:
        """Whether a call is a block that may run as kernels."""
        batch, rows, _ = inputs.shape
        if mask is not None or cache is None or cache.lengths is not None:
            return False
        heads = self._heads
        shape = (
            *(rows, heads.key_heads, heads.key_width),
            *(heads.value_heads, heads.value_width, str(inputs.dtype)),
        )
        few = batch == 1 and rows <= MOST_ROWS
        return few and gate.allows("gated_delta_verify", *shape)

    def __call__(self, inputs: mx.array, cache: Any) -> tuple[mx.array, BlockCall]:
        """The layer's output [1, T, D], and what a roll back needs."""
        layer, heads = self._layer, self._heads
        rows = inputs.shape[1]
        projected = _rows(layer.in_proj_qkv(inputs))
        weight = layer.conv1d.weight.squeeze(-1)
        made = prework(self._window(cache[0], weight), 0, projected, weight, heads)
        block = Rows(
            made.keys,
            made.values,
            _rows(layer.in_proj_a(inputs)),
            _rows(layer.in_proj_b(inputs)),
        )
        pending = self._pending(cache[1])
        out, before = verify(pending, made.queries, block, self._decay)
        call = BlockCall(made.window, before, block)
        cache[0], cache[1] = self.after(call, rows)
        cache.advance(rows)
        opening = layer.in_proj_z(inputs)
        opening = opening.reshape(1, rows, heads.value_heads, heads.value_width)
        return layer.out_proj(layer.norm(out[None], opening).reshape(1, rows, -1)), call

    def after(self, call: BlockCall, rows: int) -> tuple[mx.array, mx.array]:
        """Window and state after the first rows of a block, as a cache keeps them."""
        kept = call.window.shape[0] - call.rows.keys.shape[0]
        pending = Pending(call.before, call.rows, rows)
        state = replay(pending, self._decay)[None]
        self._given = (state, pending)
        return call.window[rows : rows + kept][None], state

    def _window(self, held: mx.array | None, weight: mx.array) -> mx.array:
        if held is not None:
            return _rows(held)
        channels, taps = weight.shape
        return mx.zeros((taps - 1, channels), dtype=weight.dtype)

    def _pending(self, held: mx.array | None) -> Pending:
        if held is None:
            return Pending(mx.zeros(self._heads.shape, dtype=mx.float32))
        if self._given is not None and held is self._given[0]:
            return self._given[1]
        return Pending(_rows(held))


def _rows(batch: mx.array) -> mx.array:
    """Without the batch axis of one; an index would gather, and copy."""
    return batch.squeeze(0)
