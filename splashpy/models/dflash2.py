# SPDX-License-Identifier: Apache-2.0
"""The network of a DFlash or DFlash 2 drafter.

One forward runs over a block: the anchor and mask tokens. Row i of its output
predicts the token at its own position, not the next one. What came before the block
reaches it only as *context*: the target's features, projected to one row per position
and offered to every layer as further keys and values. Embedding and head are the
target's.

DFlash 2 adds a short causal convolution around every attention and MLP, and the
codebooks of the candidate selector. Attribute names are the tensor names of published
checkpoints.

Shapes: L block rows, S new context rows, F feature layers, D channels, V vocabulary.
Source: dflash 0.1.0, model_mlx.py (MIT); arXiv 2602.06036.
"""

from __future__ import annotations

from collections.abc import Callable

import mlx.core as mx
import mlx.nn as nn

from splashpy.kernels.add_rms_norm import add_rms_norm
from splashpy.kernels.attention_rows import attention_rows
from splashpy.kernels.dynamic_causal_conv import Norm, conv_finish, conv_prepare
from splashpy.models.dflash2_config import DFlashConfig
from splashpy.models.dflash2_context import DrafterContext
from splashpy.models.row_layers import gated

Mask = mx.array | str | None
Projection = Callable[[mx.array, mx.array], list[tuple[mx.array, mx.array]]]
"""Features [S, F * D] and a position to keys and values of every layer."""


class DFlashNetwork(nn.Module):
    """A drafter's layers, with random weights until they are loaded.

    Args:
        config: facts of the checkpoint.
    """

    def __init__(self, config: DFlashConfig):
        super().__init__()
        self.config = config
        size, eps = config.hidden_size, config.rms_norm_eps
        self.fc = nn.Linear(len(config.feature_layers) * size, size, bias=False)
        self.hidden_norm = nn.RMSNorm(size, eps=eps)
        self.layers = [DecoderLayer(config, i) for i in range(config.num_layers)]
        self.norm = nn.RMSNorm(size, eps=eps)
        if config.version == 2:
            self.candidate_selector = CandidateSelector(config)

    @property
    def dtype(self) -> mx.Dtype:
        """What activations are computed in: bfloat16 or float32."""
        return self.norm.weight.dtype

    def new_context(self) -> DrafterContext:
        """The context of a sequence that has not begun."""
        return DrafterContext(self.config.windows)

    def extend(self, context: DrafterContext, features: mx.array) -> None:
        """Append the context rows of the next positions.

        Rows that no layer can see any more are not projected.

        Args:
            context: whose ``position`` is that of the first row.
            features: [S, F * D] of consecutive positions.
        """
        self.append(context, features, self.project)

    def append(
        self, context: DrafterContext, features: mx.array, project: Projection
    ) -> None:
        """Append rows that ``project`` computes, as :meth:`project` does."""
        count = features.shape[0]
        visible = features[count - context.visible(count) :]
        first = context.position + count - visible.shape[0]
        rows = project(visible, mx.array(first))
        for (keys, values), memory in zip(rows, context.layers, strict=True):
            unseen = keys.shape[2] - memory.visible(count)
            if unseen:
                keys, values = keys[:, :, unseen:], values[:, :, unseen:]
            memory.append(keys, values)
        context.position += count

    def project(
        self, features: mx.array, position: mx.array
    ) -> list[tuple[mx.array, mx.array]]:
        """Keys and values of new context rows, for every layer.

        Args:
            features: [S, F * D] of consecutive positions.
            position: [] int32, of the first row.

        Returns:
            Per layer [1, H, S, d] each.
        """
        rows = self.hidden_norm(self.fc(features.astype(self.dtype)))
        parts = [
            layer.self_attn.keys_and_values(rows, position) for layer in self.layers
        ]
        return [(keys[None], values[None]) for keys, values in parts]

    def __call__(self, embeddings: mx.array, context: DrafterContext) -> mx.array:
        """Hidden rows of a block that starts at ``context.position``.

        Args:
            embeddings: [L, D] of the anchor and the mask tokens, already scaled.
            context: every committed position before the anchor; left unchanged.

        Returns:
            [L, D] after the final norm.
        """
        hidden = embeddings.astype(self.dtype)
        position = mx.array(context.position)
        masks = self.masks(hidden.shape[0], context)
        for layer, memory, mask in zip(self.layers, context.layers, masks, strict=True):
            queries, keys, values, after = layer.before_attention(hidden, position)
            rows = memory.with_block(keys[None], values[None])
            attended = self.attend(queries[None], rows, mask)
            hidden = layer.after_attention(hidden, attended[0], after)
        return self.norm(hidden)

    def masks(self, rows: int, context: DrafterContext) -> list[Mask]:
        """What a block of ``rows`` rows sees in every layer; kinds share one mask."""
        kinds = list(zip(self.config.windows, self.config.causal, strict=True))
        made: dict[tuple[int | None, bool], Mask] = {}
        for kind, memory in zip(kinds, context.layers, strict=True):
            if kind not in made:
                made[kind] = memory.mask(rows, causal=kind[1])
        return [made[kind] for kind in kinds]

    def attend(
        self, queries: mx.array, rows: tuple[mx.array, mx.array], mask: Mask
    ) -> mx.array:
        """Block rows attend to the context and to each other, [1, H, L, d]."""
        scale = self.config.head_dim**-0.5
        if mask is None or isinstance(mask, str):
            return attention_rows(queries, *rows, scale, causal=mask == "causal")
        return mx.fast.scaled_dot_product_attention(
            queries, *rows, scale=scale, mask=mask
        )

    def transform(self, logits: mx.array) -> mx.array:
        """The drafter's own multiplier and softcap on the target head's logits.

        Monotone, so the largest raw logits are the largest transformed ones.

        Args:
            logits: any shape, float32.
        """
        logits = logits * self.config.output_multiplier
        cap = self.config.softcap
        return logits if cap is None else cap * mx.tanh(logits / cap)


class DecoderLayer(nn.Module):
    """Attention and MLP on the residual stream, each inside its convolution."""

    def __init__(self, config: DFlashConfig, index: int):
        super().__init__()
        size, eps = config.hidden_size, config.rms_norm_eps
        self.self_attn = Attention(config)
        self.mlp = MLP(size, config.intermediate_size)
        self.input_layernorm = nn.RMSNorm(size, eps=eps)
        self.post_attention_layernorm = nn.RMSNorm(size, eps=eps)
        if config.version == 2:
            self.attention_conv = DynamicCausalConv(config)
            self.mlp_conv = DynamicCausalConv(config)

    def before_attention(
        self, hidden: mx.array, position: mx.array
    ) -> tuple[mx.array, mx.array, mx.array, mx.array]:
        """Everything up to the attention.

        Args:
            hidden: [..., L, D], the stream.
            position: [] int32, of the first row.

        Returns:
            Queries, keys and values, [..., H, L, d] each, and the corrections of the
            convolutions around the attention (empty in version 1).
        """
        x, after = self._convolved("attention_conv", self.input_layernorm(hidden))
        return *self.self_attn.heads(x, position), after

    def after_attention(
        self, hidden: mx.array, attended: mx.array, after: mx.array
    ) -> mx.array:
        """The stream after this layer.

        Args:
            hidden: [..., L, D], the stream before it.
            attended: [..., H, L, d], what the attention gives.
            after: from :meth:`before_attention`.

        Returns:
            [..., L, D].
        """
        out = self.self_attn.output(attended)
        norm = self.post_attention_layernorm
        conv: DynamicCausalConv | None = self.get("attention_conv")
        if conv is None:
            hidden, x = add_rms_norm(out, hidden, norm.weight, norm.eps)
            return hidden + self.mlp(x)
        hidden, x = conv.finish_and_norm(out, after, hidden, (norm.weight, norm.eps))
        x, after = self._convolved("mlp_conv", x)
        return self.mlp_conv.finish(self.mlp(x), after, hidden)

    def _convolved(self, name: str, x: mx.array) -> tuple[mx.array, mx.array]:
        conv: DynamicCausalConv | None = self.get(name)
        return (x, mx.zeros(0)) if conv is None else conv.prepare(x)


class Attention(nn.Module):
    """Block rows attend to the context and to each other."""

    def __init__(self, config: DFlashConfig):
        super().__init__()
        size, width = config.hidden_size, config.head_dim
        self.q_proj = nn.Linear(size, config.num_heads * width, bias=False)
        self.k_proj = nn.Linear(size, config.num_kv_heads * width, bias=False)
        self.v_proj = nn.Linear(size, config.num_kv_heads * width, bias=False)
        self.o_proj = nn.Linear(config.num_heads * width, size, bias=False)
        self.q_norm = nn.RMSNorm(width, eps=config.rms_norm_eps)
        self.k_norm = nn.RMSNorm(width, eps=config.rms_norm_eps)
        self._config = config

    def keys_and_values(
        self, rows: mx.array, position: mx.array
    ) -> tuple[mx.array, mx.array]:
        """Keys, normed and rotated, and values of consecutive positions.

        Args:
            rows: [..., S, D].
            position: [] int32, of the first row.

        Returns:
            [..., H, S, d] each.
        """
        keys = self.k_norm(self._split(self.k_proj(rows)))
        return self.rotate(keys, position), self._split(self.v_proj(rows))

    def heads(
        self, rows: mx.array, position: mx.array
    ) -> tuple[mx.array, mx.array, mx.array]:
        """Queries beside :meth:`keys_and_values`, rotated together."""
        queries = self.q_norm(self._split(self.q_proj(rows)))
        keys = self.k_norm(self._split(self.k_proj(rows)))
        both = self.rotate(mx.concatenate([queries, keys], axis=-3), position)
        queries, keys = mx.split(both, [queries.shape[-3]], axis=-3)
        return queries, keys, self._split(self.v_proj(rows))

    def output(self, attended: mx.array) -> mx.array:
        """[..., H, L, d] to [..., L, D]."""
        return self.o_proj(attended.swapaxes(-3, -2).flatten(-2))

    def _split(self, rows: mx.array) -> mx.array:
        """[..., S, H * d] to [..., H, S, d]."""
        return mx.unflatten(rows, -1, (-1, self._config.head_dim)).swapaxes(-3, -2)

    def rotate(self, heads: mx.array, position: mx.array) -> mx.array:
        """[..., H, S, d] rotated by their positions, the first being ``position``."""
        return mx.fast.rope(
            heads,
            self._config.head_dim,
            traditional=False,
            base=self._config.rope_theta,
            scale=self._config.rope_scale,
            offset=position,
        )


class MLP(nn.Module):
    """Gated SiLU."""

    def __init__(self, size: int, intermediate_size: int):
        super().__init__()
        self.gate_proj = nn.Linear(size, intermediate_size, bias=False)
        self.up_proj = nn.Linear(size, intermediate_size, bias=False)
        self.down_proj = nn.Linear(intermediate_size, size, bias=False)

    def __call__(self, x: mx.array) -> mx.array:
        """[..., L, D] to [..., L, D]."""
        return self.down_proj(gated(self.gate_proj, self.up_proj, x))


class DynamicCausalConv(nn.Module):
    """The convolution before and after one sublayer.

    Both sides' corrections are predicted from the sublayer's input as it was before
    the first convolution.
    """

    def __init__(self, config: DFlashConfig):
        super().__init__()
        size, taps = config.hidden_size, config.conv_kernel_size
        self.base_kernel = mx.zeros((2, taps, size))
        self.kernel_projection = nn.Linear(
            size, 2 * taps * config.conv_groups, bias=False
        )
        self._taps, self._group_size = taps, config.conv_group_size

    def prepare(self, x: mx.array) -> tuple[mx.array, mx.array]:
        """The convolved input, and the corrections of both sides."""
        predicted = mx.unflatten(self.kernel_projection(x), -1, (2 * self._taps, -1))
        before = self.base_kernel[0]
        return conv_prepare(
            x, predicted, before, group_size=self._group_size
        ), predicted

    def finish(
        self, out: mx.array, predicted: mx.array, residual: mx.array
    ) -> mx.array:
        """The stream with the convolved output of the sublayer added."""
        after = self.base_kernel[1]
        size = self._group_size
        return conv_finish(out, predicted, after, residual, group_size=size)[0]

    def finish_and_norm(
        self, out: mx.array, predicted: mx.array, residual: mx.array, norm: Norm
    ) -> tuple[mx.array, mx.array]:
        """:meth:`finish`, and the norm of its result."""
        after = self.base_kernel[1]
        size = self._group_size
        stream, normed = conv_finish(
            out, predicted, after, residual, norm, group_size=size
        )
        assert normed is not None
        return stream, normed


class CandidateSelector(nn.Module):
    """Which token follows which: two codebooks and a gate from the hidden row."""

    def __init__(self, config: DFlashConfig):
        super().__init__()
        shape = (config.vocab_size, config.selector_rank)
        self.predecessor_codebook = mx.random.normal(shape, scale=0.02)
        self.successor_codebook = mx.zeros(shape)
        self.hidden_projection = nn.Linear(
            config.hidden_size, config.selector_rank, bias=False
        )
