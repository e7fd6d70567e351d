# SPDX-License-Identifier: Apache-2.0
"""Many blocks of some sequences in one pass of a drafter.

A block at position p is what a drafter meets when x_p is the last committed token:
its context are the features of positions 0 to p - 1, never of p itself, its rows are
the anchor x_p and masks at the absolute positions p, p + 1, ..., and row k predicts
the token at its own position, x_{p+k}. Row 0 predicts nothing.

The layers are the ones that draft; only the attention is written out here, because
all blocks of a sequence share its context rows and none sees another block.

Shapes: S sequences, L positions, N blocks of a sequence, B block rows, K = B - 1
drafted tokens, F feature layers, D channels, H query heads, G key/value heads, d head
dimension.
Source: section "Training" of arXiv 2602.06036; NVIDIA-NeMo/Automodel, dflash2_core.py
(Apache-2.0).
"""

from __future__ import annotations

from typing import NamedTuple

import mlx.core as mx

from splashpy.drafting.head import TargetDoor
from splashpy.models.dflash2 import DFlashNetwork


class Batch(NamedTuple):
    """Some blocks of some sequences, padded to one shape.

    Attributes:
        features: [S, L, F * D]; rows after a sequence's end are zero.
        anchors: [S, N] int32, absolute positions.
        anchor_ids: [S, N] int32, the tokens there.
        labels: [S, N, K] int32, the tokens after each anchor.
        supervised: [S, N, K] float32, 1 where a label counts.
        soft_ids: [S, N, K, T] int32, tokens the target held likely in a label's place.
        soft_probs: [S, N, K, T] float32, their probabilities; a row's sum is 1.
    """

    features: mx.array
    anchors: mx.array
    anchor_ids: mx.array
    labels: mx.array
    supervised: mx.array
    soft_ids: mx.array
    soft_probs: mx.array

    @property
    def predecessors(self) -> mx.array:
        """[S, N, K] int32, the token before each label: the anchor for the first."""
        return mx.concatenate([self.anchor_ids[..., None], self.labels[..., :-1]], -1)


class BlockEmbedding:
    """Embeddings of a block's rows: an anchor, then masks.

    Args:
        network: whose configuration names the mask token.
        target: whose embedding is borrowed.
    """

    def __init__(self, network: DFlashNetwork, target: TargetDoor):
        self._target = target
        self._config = network.config
        self._mask = self._embed(mx.array([self._config.mask_token_id]))
        mx.eval(self._mask)

    def __call__(self, anchor_ids: mx.array) -> mx.array:
        """[M] ids to [M, B, D]."""
        anchors = self._embed(anchor_ids)[:, None]
        count, size = anchor_ids.shape[0], anchors.shape[-1]
        masks = mx.broadcast_to(self._mask, (count, self._config.block_size - 1, size))
        return mx.concatenate([anchors, masks], axis=1)

    def _embed(self, token_ids: mx.array) -> mx.array:
        return self._target.embed(token_ids) * self._config.input_embedding_scale


def run_blocks(
    network: DFlashNetwork, embeddings: mx.array, features: mx.array, anchors: mx.array
) -> mx.array:
    """Hidden rows of all blocks, differentiable.

    Args:
        network: the drafter.
        embeddings: [S * N, B, D], already scaled.
        features: [S, L, F * D] of all positions from 0 on.
        anchors: [S, N] int32, where the blocks begin.

    Returns:
        [S * N, B, D] after the final norm, as drafting would compute them with the
        positions before each anchor committed.
    """
    dtype = network.dtype
    context = network.hidden_norm(network.fc(features.astype(dtype)))
    hidden, positions = embeddings.astype(dtype), anchors.flatten()
    rows = hidden.shape[1]
    kinds = list(zip(network.config.windows, network.config.causal, strict=True))
    masks = {
        kind: _mask(anchors, rows, features.shape[1], window=kind[0], causal=kind[1])
        for kind in set(kinds)
    }
    start = mx.array(0)
    for layer, kind in zip(network.layers, kinds, strict=True):
        queries, keys, values, after = layer.before_attention(hidden, positions)
        shared = layer.self_attn.keys_and_values(context, start)
        attended = _attend(queries, (keys, values), shared, masks[kind])
        hidden = layer.after_attention(hidden, attended, after)
    return network.norm(hidden)


def _mask(
    anchors: mx.array, rows: int, length: int, *, window: int | None, causal: bool
) -> mx.array:
    """Whether block rows see the context and each other, [S, 1, N, 1, B, L + B]."""
    row = mx.arange(rows)[:, None]
    at = mx.arange(length)
    before = at < anchors[..., None, None]  # strictly: the anchor is no context
    if window is not None:
        query = anchors[..., None, None] + row
        before = before & (query - at < window)
    before = mx.broadcast_to(before, (*anchors.shape, rows, length))
    own = mx.arange(rows)[None] <= row if causal else mx.ones((rows, rows), mx.bool_)
    own = mx.broadcast_to(own, (*anchors.shape, rows, rows))
    return mx.concatenate([before, own], axis=-1)[:, None, :, None]


def _attend(
    queries: mx.array,
    own: tuple[mx.array, mx.array],
    shared: tuple[mx.array, mx.array],
    mask: mx.array,
) -> mx.array:
    """Attention of [S * N, H, B, d] queries to both kinds of keys.

    Args:
        queries: [S * N, H, B, d].
        own: keys and values of the blocks, [S * N, G, B, d].
        shared: keys and values of the sequences, [S, G, L, d].
        mask: [S, 1, N, 1, B, L + B].

    Returns:
        [S * N, H, B, d].
    """
    sequences, groups, length, width = shared[0].shape
    blocks, heads, rows, _ = queries.shape
    count, share = blocks // sequences, heads // groups
    q = queries.reshape(sequences, count, groups, share * rows, width)
    q = q.swapaxes(1, 2) * width**-0.5  # [S, G, N, H/G * B, d]
    own_keys, own_values = (
        each.reshape(sequences, count, groups, rows, width).swapaxes(1, 2)
        for each in own
    )
    flat = (sequences, groups, count * share * rows)
    to_shared = q.reshape(*flat, width) @ shared[0].swapaxes(-1, -2)
    to_own = q @ own_keys.swapaxes(-1, -2)
    split = (sequences, groups, count, share, rows)
    scores = mx.concatenate(
        [to_shared.reshape(*split, length), to_own.reshape(*split, rows)], axis=-1
    )
    weights = mx.softmax(
        mx.where(mask, scores, mx.array(-mx.inf, scores.dtype)), axis=-1, precise=True
    )
    from_shared = weights[..., :length].reshape(*flat, length) @ shared[1]
    grouped = (sequences, groups, count, share * rows)
    from_own = weights[..., length:].reshape(*grouped, rows) @ own_values
    out = from_shared.reshape(*grouped, width) + from_own
    return out.swapaxes(1, 2).reshape(blocks, heads, rows, width)
