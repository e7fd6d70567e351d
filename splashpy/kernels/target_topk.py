# SPDX-License-Identifier: Apache-2.0
"""The distribution of the target's next token, on the few tokens that top-k leaves.

The logits of the C largest tokens are divided by the temperature; their softmax is cut
to the smallest set that reaches top-p, then to what is at least min-p times as likely
as the best, and normalised. Tokens are kept while the mass before them is below top-p,
the crossing one included; equal logits are kept in order of their ids.

Shapes: R rows, V vocabulary, C tokens that top-k leaves.
"""

from __future__ import annotations

from dataclasses import dataclass

import mlx.core as mx

from splashpy.kernels import gate, metal
from splashpy.kernels.top_tokens import top_shards, top_tokens

MOST_COUNT = 32
"""Largest C: one lane of a simdgroup for each token."""

_CUT = 0x40000000  # ids of what is cut begin here: after every token
_KERNEL = metal.Kernel(
    name="target_topk",
    files=("top_tokens", "target_topk"),
    inputs=("values", "ids", "rule"),
    outputs=("tokens", "probs", "broken"),
    body="""
    threadgroup float largest[COUNT];
    threadgroup uint best[COUNT];
    threadgroup uint order[COUNT];
    const uint row = threadgroup_position_in_grid.y;
    merge_lists_at<COUNT, LISTS>(values, ids, largest, best, row, SHARDS,
                                 thread_index_in_simdgroup);
    simdgroup_barrier(mem_flags::mem_threadgroup);
    distribution_at<COUNT>(largest, best, order, rule, tokens, probs, broken, row,
                           thread_index_in_simdgroup);
    """,
)


@dataclass(frozen=True, slots=True)
class Cut:
    """How the distribution is made.

    Attributes:
        temperature: above 0.
        top_k: C, at most :data:`MOST_COUNT`.
        top_p: mass to reach; 1 keeps all.
        min_p: smallest chance relative to the best; 0 keeps all.
    """

    temperature: float
    top_k: int
    top_p: float = 1.0
    min_p: float = 0.0


@dataclass(frozen=True, slots=True)
class Distributions:
    """A distribution per row.

    Attributes:
        ids: [R, C] int32, ascending; what is cut comes last, with ids above every
            token.
        probs: [R, C] float32, 0 for what is cut.
        broken: [R] bool, whether a logit of the row is not a number.
    """

    ids: mx.array
    probs: mx.array
    broken: mx.array


def target_topk(logits: mx.array, cut: Cut) -> Distributions:
    """The distributions of rows of logits.

    Args:
        logits: [R, V], any float dtype.
        cut: how to make them.

    Raises:
        ValueError: ``top_k`` is not 1 to the smaller of V and :data:`MOST_COUNT`.
    """
    rows, vocab = logits.shape
    if not 1 <= cut.top_k <= min(vocab, MOST_COUNT):
        raise ValueError(f"top_k {cut.top_k} of {vocab} tokens")
    if rows and gate.allows("target_topk", *shape_of(logits)):
        return _metal(logits, cut)
    return _reference(logits, cut)


def shape_of(logits: mx.array) -> gate.Shape:
    """What the verdict on a call is filed under."""
    return *logits.shape, str(logits.dtype)


def _reference(logits: mx.array, cut: Cut) -> Distributions:
    ids, values = top_tokens(logits, cut.top_k)
    best = values[:, :1]
    scaled = (values - best) / cut.temperature
    weights = mx.exp(scaled)
    chances = weights / mx.sum(weights, axis=-1, keepdims=True)
    stays = mx.cumsum(chances, axis=-1, inclusive=False) < cut.top_p
    if cut.min_p > 0:
        stays = stays & (scaled >= mx.log(mx.array(cut.min_p)))
    stays = stays | (mx.arange(cut.top_k) == 0)
    left = mx.where(stays, weights, 0)
    ids = mx.where(stays, ids, _CUT + mx.arange(cut.top_k))
    order = mx.argsort(ids, axis=-1)
    return Distributions(
        mx.take_along_axis(ids, order, axis=-1).astype(mx.int32),
        mx.take_along_axis(left, order, axis=-1) / mx.sum(left, axis=-1, keepdims=True),
        mx.isnan(best[:, 0]),
    )


def _metal(logits: mx.array, cut: Cut) -> Distributions:
    rows = logits.shape[0]
    shards = top_shards(logits, cut.top_k)
    ids, probs, broken = metal.build(_KERNEL)(
        inputs=[
            shards.values,
            shards.ids,
            mx.array([cut.temperature, cut.top_p, cut.min_p]),
        ],
        template=[
            ("COUNT", cut.top_k),
            ("LISTS", shards.lists),
            ("SHARDS", shards.count),
        ],
        grid=(metal.SIMD_WIDTH, rows, 1),
        threadgroup=(metal.SIMD_WIDTH, 1, 1),
        output_shapes=[(rows, cut.top_k), (rows, cut.top_k), (rows,)],
        output_dtypes=[mx.int32, mx.float32, mx.bool_],
    )
    return Distributions(ids, probs, broken)
