# SPDX-License-Identifier: Apache-2.0
"""Let a model's layers use the kernels for passes of a few rows.

Every module whose arithmetic is known gets a throw-away subclass of its own class, as
taps do (``tap.py``); one of a layer with attention asks another function
(``attending.py``). All of them ask the operations of ``kernels``, which run MLX's own
where a kernel does not fit or is not faster, so a model with these classes computes the
same on every machine, up to rounding.

Known are quantized matrices, the gated MLP, the residual addition before it, attention
without sinks, and the heads of a vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import mlx.core as mx
import mlx.nn as nn
from mlx_lm.models import llama, qwen2, qwen3, qwen3_5, qwen3_next

from splashpy.kernels.add_rms_norm import add_rms_norm
from splashpy.kernels.attention_rows import attention_rows, attention_rows_q8
from splashpy.kernels.qmm_rows import MOST_ROWS, Packed, gated_rows, qmm_rows
from splashpy.models.attending import Attention, attends, with_attention
from splashpy.models.quantized_lane import LaneQ8

_MLPS = (llama.MLP, qwen2.MLP, qwen3.MLP, qwen3_next.Qwen3NextMLP)
_BLOCKS = (llama.TransformerBlock, qwen3.TransformerBlock, qwen3_5.DecoderLayer)


def use_row_kernels(model: nn.Module) -> None:
    """Give the known modules of a model their subclasses."""
    stream = _Stream()
    for module in model.modules():
        chosen = _subclass(module, stream)
        if chosen:
            module.__class__ = chosen


def packed(layer: nn.Module) -> Packed | None:
    """The matrix of a layer the kernels can read; None for another layer."""
    known = isinstance(layer, nn.QuantizedLinear | nn.QuantizedEmbedding)
    if known and layer.mode == "affine" and "bias" not in layer and "biases" in layer:
        return Packed.of(layer)
    return None


def gated(opening: nn.Module, value: nn.Module, x: mx.array) -> mx.array:
    """silu(opening(x)) * value(x), in one launch where both matrices are packed."""
    left, right = packed(opening), packed(value)
    if left is not None and right is not None:
        return gated_rows(x, left, right)
    return nn.silu(opening(x)) * value(x)


class RowsLinear(nn.QuantizedLinear):
    """An affine quantized layer without a bias."""

    def __call__(self, x: mx.array) -> mx.array:
        """[..., K] to [..., N]."""
        return qmm_rows(x, Packed.of(self))


class RowsEmbedding(nn.QuantizedEmbedding):
    """An affine quantized embedding that is also the head."""

    def as_linear(self, x: mx.array) -> mx.array:
        """[..., D] to [..., V]."""
        return qmm_rows(x, Packed.of(self))


def _subclass(module: nn.Module, stream: _Stream) -> type[nn.Module] | None:
    kind = type(module)
    if kind is nn.QuantizedLinear:
        return RowsLinear if packed(module) else None
    if kind is nn.QuantizedEmbedding:
        return RowsEmbedding if packed(module) else None
    call = _mlp if kind in _MLPS else _block(stream) if kind in _BLOCKS else None
    if call is None and attends(kind):
        call = with_attention(kind, _Attention)
    if call is None:
        return None
    made: Any = type(f"Rows{kind.__name__}", (kind,), {"__call__": call})
    return made


def _mlp(self: Any, x: mx.array) -> mx.array:
    return self.down_proj(gated(self.gate_proj, self.up_proj, x))


@dataclass(slots=True)
class _Stream:
    """The sum a block ended with, which the next block may compute with its norm.

    The block's result is that sum as well, unevaluated: whoever else reads it gets it.

    Attributes:
        parts: the result, and the two arrays it is the sum of.
    """

    parts: tuple[mx.array, mx.array, mx.array] | None = None

    def normed(self, x: mx.array, norm: Any) -> tuple[mx.array, mx.array]:
        """The stream that ``x`` is, and its norm."""
        parts, self.parts = self.parts, None
        if parts is None or parts[0] is not x:
            return x, norm(x)
        return add_rms_norm(parts[2], parts[1], norm.weight, norm.eps)


def _block(stream: _Stream) -> Callable[..., mx.array]:
    def call(self: Any, x: mx.array, mask: Any = None, cache: Any = None) -> mx.array:
        mixer = (
            self.linear_attn if getattr(self, "is_linear", False) else self.self_attn
        )
        x, normed = stream.normed(x, self.input_layernorm)
        out = mixer(normed, mask, cache)
        norm = self.post_attention_layernorm
        x, normed = add_rms_norm(out, x, norm.weight, norm.eps)
        mlp = self.mlp(normed)
        result = x + mlp
        if x.shape[-2] <= MOST_ROWS:  # a chunk of a prompt would be held for nothing
            stream.parts = (result, x, mlp)
        return result

    return call


class _Attention:
    """Stands in for mlx-lm's function; asks it for what no kernel computes."""

    def __init__(self, original: Attention):
        self._original = original

    def __call__(
        self,
        queries: mx.array,
        keys: mx.array,
        values: mx.array,
        cache: Any = None,
        scale: float = 1.0,
        **more: Any,
    ) -> mx.array:
        mask = more.get("mask")
        plain = more.get("sinks") is None and not hasattr(cache, "bits")
        if not plain or isinstance(mask, mx.array):
            return self._original(queries, keys, values, cache, scale, **more)
        causal = mask == "causal"
        if isinstance(cache, LaneQ8) and cache.rounds:
            return attention_rows_q8(queries, *cache.packed, scale, causal=causal)
        return attention_rows(queries, keys, values, scale, causal=causal)
