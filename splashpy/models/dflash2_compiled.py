# SPDX-License-Identifier: Apache-2.0
"""A drafter network whose graph is traced once instead of rebuilt every cycle.

A drafter runs a small network many times, so building its graph in Python would be a
good part of a cycle. The pieces between the attentions have fixed shapes; they are
traced once per shape and replayed by MLX, which also fuses their elementwise
operations. Attention stays outside: its length changes in every cycle.

New context rows go through the key and value projections of every layer. Those have
one input, so they are one product here, with the matrices of all layers side by side.

Weights are constants of the traces: a network whose weights change afterwards needs a
new object of this class.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from itertools import pairwise
from typing import Any

import mlx.core as mx
import mlx.nn as nn

from splashpy.models.dflash2 import DecoderLayer, DFlashNetwork, DynamicCausalConv
from splashpy.models.dflash2_context import DrafterContext


class CompiledNetwork:
    """Computes what a :class:`DFlashNetwork` computes, up to rounding.

    Args:
        network: loaded, with its final weights.
        embed: [n] ids to [n, D] rows, as the drafter wants them.
    """

    def __init__(self, network: DFlashNetwork, embed: Callable[[mx.array], mx.array]):
        self._network = network
        self._project = mx.compile(_StackedProjection(network))
        layers = [_frozen(layer) for layer in network.layers]
        self._last = layers[-1]
        self._begin = mx.compile(_to_first_attention(layers[0], embed, network.dtype))
        # One piece from each attention to the next.
        self._between = [
            mx.compile(_to_next_attention(layer, following))
            for layer, following in pairwise(layers)
        ]

    def extend(self, context: DrafterContext, features: mx.array) -> None:
        """See :meth:`DFlashNetwork.extend`."""
        self._network.append(context, features, self._project)

    def __call__(
        self, anchor: mx.array, masks: mx.array, context: DrafterContext
    ) -> tuple[mx.array, mx.array, mx.array]:
        """A block up to its last attention; :meth:`finish` does the rest.

        Args:
            anchor: [] int32.
            masks: [L - 1, D] rows of the mask tokens.
            context: every committed position before the anchor; left unchanged.
        """
        network, position = self._network, mx.array(context.position)
        kinds = network.masks(masks.shape[0] + 1, context)
        hidden, queries, keys, values, after = self._begin(anchor, masks, position)
        for index, between in enumerate(self._between):
            rows = context.layers[index].with_block(keys, values)
            attended = network.attend(queries, rows, kinds[index])
            hidden, queries, keys, values, after = between(
                hidden, attended, after, position
            )
        rows = context.layers[-1].with_block(keys, values)
        return hidden, network.attend(queries, rows, kinds[-1]), after

    def finish(self, hidden: mx.array, attended: mx.array, after: mx.array) -> mx.array:
        """[L, D] after the final norm; for a caller to trace with what follows."""
        stream = self._last.after_attention(hidden, attended[0], after)
        return self._network.norm(stream)


class _StackedProjection:
    """:meth:`DFlashNetwork.project` with one product for all layers."""

    def __init__(self, network: DFlashNetwork):
        attentions = [layer.self_attn for layer in network.layers]
        parts = [part for a in attentions for part in (a.k_proj, a.v_proj)]
        self._network = network
        self._fc = _frozen(network.fc)
        self._product = _side_by_side(parts)
        self._norms = mx.stack([a.k_norm.weight for a in attentions])[:, None, None]
        mx.eval(self._norms)

    def __call__(
        self, features: mx.array, position: mx.array
    ) -> list[tuple[mx.array, mx.array]]:
        """Features [S, F * D] to keys and values [1, H, S, d] of every layer."""
        network = self._network
        rows = network.hidden_norm(self._fc(features.astype(network.dtype)))
        config = network.config
        both = self._product(rows).reshape(
            rows.shape[0], config.num_layers, 2, config.num_kv_heads, config.head_dim
        )
        both = both.transpose(2, 1, 3, 0, 4)  # [2, layers, H, S, d]
        # Two roundings less than in bfloat16: normed and weighted in float32.
        keys = mx.fast.rms_norm(both[0].astype(mx.float32), None, config.rms_norm_eps)
        keys = (keys * self._norms).astype(rows.dtype)
        keys = network.layers[0].self_attn.rotate(keys, position)
        return [(keys[i : i + 1], both[1, i : i + 1]) for i in range(config.num_layers)]


def _side_by_side(parts: Sequence[nn.Module]) -> Callable[[mx.array], mx.array]:
    """Linear layers of one input as one product, outputs one after the other."""
    packed = [part for part in parts if isinstance(part, nn.QuantizedLinear)]
    if not packed:
        weight = mx.concatenate([part["weight"] for part in parts]).T
        mx.eval(weight)
        return lambda x: x @ weight
    kinds = {(part.group_size, part.bits, part.mode) for part in packed}
    if len(packed) != len(parts) or len(kinds) > 1:
        return lambda x: mx.concatenate([part(x) for part in parts], axis=-1)
    first = packed[0]
    whole = nn.QuantizedLinear(
        first.weight.shape[1] * 32 // first.bits,
        1,
        bias=False,
        group_size=first.group_size,
        bits=first.bits,
        mode=first.mode,
    )
    names = [name for name in ("weight", "scales", "biases") if name in first]
    for name in names:
        whole[name] = mx.concatenate([part[name] for part in packed])
    mx.eval([whole[name] for name in names])
    return whole


class _Product:
    """A linear layer whose matrix lies ready for the product."""

    def __init__(self, weight: mx.array):
        self._matrix = weight.T  # a view; nothing is copied
        mx.eval(self._matrix)

    def __call__(self, x: mx.array) -> mx.array:
        return x @ self._matrix


def _frozen(module: Any) -> Any:
    """A twin of a module that keeps what follows from weights alone.

    A trace repeats every operation, those on constants included.
    """
    if type(module) is nn.Linear and "bias" not in module:
        return _Product(module.weight)
    twin = copy(module)
    for name, part in module.items():
        if isinstance(part, nn.Module):
            twin[name] = _frozen(part)
    if isinstance(module, DynamicCausalConv):
        twin.base_kernel = list(module.base_kernel)
        mx.eval(twin.base_kernel)
    return twin


Piece = Callable[..., tuple[mx.array, ...]]
"""Between two attentions; queries, keys and values have their batch axis of 1."""


def _to_attention(layer: DecoderLayer) -> Piece:
    def piece(hidden: mx.array, position: mx.array) -> tuple[mx.array, ...]:
        queries, keys, values, after = layer.before_attention(hidden, position)
        return hidden, queries[None], keys[None], values[None], after

    return piece


def _to_first_attention(
    layer: DecoderLayer, embed: Callable[[mx.array], mx.array], dtype: mx.Dtype
) -> Piece:
    to_attention = _to_attention(layer)

    def piece(
        anchor: mx.array, masks: mx.array, position: mx.array
    ) -> tuple[mx.array, ...]:
        block = mx.concatenate([embed(anchor[None]), masks])
        return to_attention(block.astype(dtype), position)

    return piece


def _to_next_attention(layer: DecoderLayer, following: DecoderLayer) -> Piece:
    to_attention = _to_attention(following)

    def piece(
        hidden: mx.array, attended: mx.array, after: mx.array, position: mx.array
    ) -> tuple[mx.array, ...]:
        hidden = layer.after_attention(hidden, attended[0], after)
        return to_attention(hidden, position)

    return piece
