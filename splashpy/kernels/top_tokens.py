# SPDX-License-Identifier: Apache-2.0
"""The largest logits of every row, without sorting the vocabulary.

Larger values come first, equal values in order of their ids, and what is not a number
before everything else, so the result is the same on every device.

The kernel cuts a row into shards: a threadgroup keeps the largest of its shard, and
whoever needs the row's largest merges the sorted lists of the shards.

Shapes: K rows, V vocabulary, C tokens kept, S shards.
"""

from __future__ import annotations

from dataclasses import dataclass

import mlx.core as mx

from splashpy.kernels import gate, metal

# Two small sorts replace one of the whole vocabulary: first the blocks with the
# largest maxima, then the tokens of those blocks.
_BLOCK = 128

_SHARD_THREADS = 256
_SHARDS = 32  # one list per lane of the simdgroup that merges them
_MOST_PER_THREAD = 64  # logits a thread keeps in registers

_SHARD_KERNEL = metal.Kernel(
    name="top_shards",
    files=("top_tokens",),
    inputs=("logits",),
    outputs=("values", "ids"),
    body="""
    threadgroup uint slots[128];
    top_shard_at<COUNT, PER>(
        logits, values, ids, slots, VOCAB, threadgroup_position_in_grid.y,
        threadgroup_position_in_grid.x, threadgroups_per_grid.x,
        thread_position_in_threadgroup.x, threads_per_threadgroup.x,
        thread_index_in_simdgroup, simdgroup_index_in_threadgroup,
        simdgroups_per_threadgroup);
    """,
)
_MERGE_KERNEL = metal.Kernel(
    name="top_merge",
    files=("top_tokens",),
    inputs=("values", "ids"),
    outputs=("best_values", "best_ids"),
    body="""
    threadgroup float largest[COUNT];
    threadgroup uint tokens[COUNT];
    const uint row = threadgroup_position_in_grid.y;
    merge_lists_at<COUNT, LISTS>(values, ids, largest, tokens, row, SHARDS,
                                 thread_index_in_simdgroup);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    for (uint k = thread_index_in_simdgroup; k < COUNT; k += 32) {
      best_values[row * COUNT + k] = largest[k];
      best_ids[row * COUNT + k] = int(tokens[k]);
    }
    """,
)


@dataclass(frozen=True, slots=True)
class Shards:
    """The largest logits of every shard of every row, from the kernel.

    Attributes:
        values: [K, S, C] float32, largest first.
        ids: [K, S, C] uint32; the largest number where a shard has fewer tokens.
    """

    values: mx.array
    ids: mx.array

    @property
    def count(self) -> int:
        """S."""
        return self.values.shape[1]

    @property
    def lists(self) -> int:
        """Lists that one lane of a simdgroup merges."""
        return -(-self.count // metal.SIMD_WIDTH)


def top_tokens(logits: mx.array, count: int) -> tuple[mx.array, mx.array]:
    """The largest logits of every row.

    Args:
        logits: [K, V], any float dtype.
        count: C, at most V.

    Returns:
        ids [K, C] int32 and values [K, C] float32, largest first; equal values in
        order of their ids.

    Raises:
        ValueError: C exceeds V.
    """
    rows, vocab = logits.shape
    if count > vocab:
        raise ValueError(f"the {count} largest of {vocab} tokens")
    if rows and gate.allows("top_tokens", rows, vocab, count, str(logits.dtype)):
        return _metal(logits, count)
    return _reference(logits, count)


def best_token(logits: mx.array) -> tuple[mx.array, mx.array]:
    """The largest logit of every row, and whether the row can be trusted.

    Args:
        logits: [K, V], any float dtype.

    Returns:
        ids [K] int32, equal values in order of their ids; and [K] bool, whether a
        logit of the row is not a number.
    """
    rows, vocab = logits.shape
    if rows and gate.allows("top_tokens", rows, vocab, 1, str(logits.dtype)):
        ids, values = _metal(logits, 1)
        return ids[:, 0], mx.isnan(values[:, 0])
    return mx.argmax(logits, axis=-1).astype(mx.int32), broken_rows(logits)


def broken_rows(logits: mx.array) -> mx.array:
    """Whether a logit of a row is not a number, [K] bool."""
    return mx.any(mx.isnan(logits), axis=-1)


def top_shards(logits: mx.array, count: int) -> Shards:
    """The first launch: the largest logits of every shard."""
    rows, vocab = logits.shape
    threads = metal.whole_simdgroups(_SHARD_THREADS, _SHARD_KERNEL.name)
    per = min(-(-vocab // (_SHARDS * threads)), _MOST_PER_THREAD)
    shards = -(-vocab // (per * threads))
    values, ids = metal.build(_SHARD_KERNEL)(
        inputs=[logits],
        template=[("COUNT", count), ("PER", per), ("VOCAB", vocab)],
        grid=(shards * threads, rows, 1),
        threadgroup=(threads, 1, 1),
        output_shapes=[(rows, shards, count)] * 2,
        output_dtypes=[mx.float32, mx.uint32],
    )
    return Shards(values, ids)


def _metal(logits: mx.array, count: int) -> tuple[mx.array, mx.array]:
    shards = top_shards(logits, count)
    rows = logits.shape[0]
    values, ids = metal.build(_MERGE_KERNEL)(
        inputs=[shards.values, shards.ids],
        template=[("COUNT", count), ("LISTS", shards.lists), ("SHARDS", shards.count)],
        grid=(metal.SIMD_WIDTH, rows, 1),
        threadgroup=(metal.SIMD_WIDTH, 1, 1),
        output_shapes=[(rows, count)] * 2,
        output_dtypes=[mx.float32, mx.int32],
    )
    return ids, values


def _reference(logits: mx.array, count: int) -> tuple[mx.array, mx.array]:
    rows, vocab = logits.shape
    values = logits.astype(mx.float32)
    if vocab <= 2 * count * _BLOCK:
        return _sorted_largest(values, mx.arange(vocab)[None], count)
    # A token among the C largest lies in a block among those with the C largest
    # maxima: each block before its own holds a larger token.
    blocks = mx.pad(
        values, [(0, 0), (0, -vocab % _BLOCK)], constant_values=-mx.inf
    ).reshape(rows, -1, _BLOCK)
    chosen, _ = _reference(blocks.max(axis=-1), count)
    ids = (chosen[..., None] * _BLOCK + mx.arange(_BLOCK)).reshape(rows, -1)
    inside = mx.take_along_axis(blocks, chosen[..., None], axis=1).reshape(rows, -1)
    return _sorted_largest(inside, ids, count)


def _sorted_largest(
    values: mx.array, ids: mx.array, count: int
) -> tuple[mx.array, mx.array]:
    """The ``count`` largest values, equal ones by id; no two sort keys are equal."""
    bits = (values + 0.0).view(mx.uint32)  # + 0.0: minus zero equals zero
    negative = bits >> 31 == 1
    ascending = mx.where(negative, ~bits, bits | 0x80000000).astype(mx.uint64)
    ascending = mx.where(mx.isnan(values), 0xFFFFFFFF, ascending)
    keys = (ascending << 32) | (~ids.astype(mx.uint32)).astype(mx.uint64)
    places = mx.argpartition(keys, -count, axis=-1)[..., -count:]
    order = mx.argsort(mx.take_along_axis(keys, places, axis=-1), axis=-1)
    places = mx.take_along_axis(places, order, axis=-1)[..., ::-1]
    ids = mx.broadcast_to(ids, values.shape)
    return (
        mx.take_along_axis(ids, places, axis=-1).astype(mx.int32),
        mx.take_along_axis(values, places, axis=-1),
    )
