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

import mlx.core as mx
import mlx.nn as nn

from splashpy.models.dflash2 import DecoderLayer, DFlashNetwork
from splashpy.models.dflash2_context import DrafterContext


class CompiledNetwork:
    """Computes what a :class:`DFlashNetwork` computes, up to rounding.

    Args:
        network: loaded, with its final weights.
    """

    def __init__(self, network: DFlashNetwork):
        self._network = network
        self._project = mx.compile(_StackedProjection(network))
        first, *others = network.layers
        self._before = mx.compile(first.before_attention)
        # One piece from each attention to the next.
        self._between = [
            mx.compile(_from_attention_to_next(layer, following))
            for layer, following in zip(network.layers, others, strict=False)
        ]
        self._after = mx.compile(
            lambda hidden, attended, after: network.norm(
                network.layers[-1].after_attention(hidden, attended, after)
            )
        )

    def extend(self, context: DrafterContext, features: mx.array) -> None:
        """See :meth:`DFlashNetwork.extend`."""
        self._network.append(context, features, self._project)

    def __call__(self, embeddings: mx.array, context: DrafterContext) -> mx.array:
        """See :meth:`DFlashNetwork.__call__`."""
        network, position = self._network, mx.array(context.position)
        hidden = embeddings[None].astype(network.dtype)
        masks = network.masks(hidden.shape[1], context)
        queries, keys, values, after = self._before(hidden, position)
        for index, between in enumerate(self._between):
            rows = context.layers[index].with_block(keys, values)
            attended = network.attend(queries, rows, masks[index])
            hidden, queries, keys, values, after = between(
                hidden, attended, after, position
            )
        rows = context.layers[-1].with_block(keys, values)
        attended = network.attend(queries, rows, masks[-1])
        return self._after(hidden, attended, after)[0]


class _StackedProjection:
    """:meth:`DFlashNetwork.project` with one product for all layers."""

    def __init__(self, network: DFlashNetwork):
        attentions = [layer.self_attn for layer in network.layers]
        parts = [part for a in attentions for part in (a.k_proj, a.v_proj)]
        self._network = network
        self._product = _side_by_side(parts)
        self._norms = mx.stack([a.k_norm.weight for a in attentions])[:, None, None]
        mx.eval(self._norms)

    def __call__(
        self, features: mx.array, position: mx.array
    ) -> list[tuple[mx.array, mx.array]]:
        """Features [S, F * D] to keys and values [1, H, S, d] of every layer."""
        network = self._network
        rows = network.hidden_norm(network.fc(features.astype(network.dtype)))
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


def _from_attention_to_next(
    layer: DecoderLayer, following: DecoderLayer
) -> Callable[..., tuple[mx.array, ...]]:
    def piece(
        hidden: mx.array, attended: mx.array, after: mx.array, position: mx.array
    ) -> tuple[mx.array, ...]:
        hidden = layer.after_attention(hidden, attended, after)
        return hidden, *following.before_attention(hidden, position)

    return piece
