# SPDX-License-Identifier: Apache-2.0
"""Attention of the few rows of a block over everything read before.

All query heads of a key head are one matrix for the kernel, so keys and values are read
once. The keys are cut into blocks that threadgroups work on side by side; a second
launch combines them in order. Keys and values may be views of larger buffers, and may
lie in 8 bits with a scale and a bias per 64 channels.

Shapes: H query heads, G key heads, L rows, S keys, D channels of a head.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import mlx.core as mx

from splashpy.kernels import gate, metal

FEWEST_ROWS, MOST_ROWS = 2, 16
PACKED_GROUP = 64
"""Channels that share a scale and a bias in 8 bits."""

_WIDTHS = (64, 128, 256)
_WIDE = 128  # channels of a head that one simdgroup can hold
_TILE = 8
_STEP = 16  # keys per step
_MOST_IN_FLIGHT = 256  # threadgroups that fill the largest GPU
_FEWEST_IN_FLIGHT = 32  # below this, the rows are divided among threadgroups as well
# A block leaves a float32 row per query row; this many keys per row keep that below a
# tenth of the keys and values that were read for it.
_KEYS_PER_ROW = 24
_USUAL_ROWS = 8  # of a verify pass
_LONGEST_BITS = 16  # beyond 32k keys one verdict holds

_CALL = """
    threadgroup float2 exchange[EXCHANGE];
    const uint head = threadgroup_position_in_grid.y;
    attend_block_at<WIDTH, PARTS, CAUSAL>(
        queries, k, v, sums, largest, totals, exchange, ulong(queries_strides[1]),
        ulong(queries_strides[2]), scale, head, threadgroup_position_in_grid.x,
        threadgroups_per_grid.x, uint(chunk), uint(count), ROWS, LENGTH,
        threadgroup_position_in_grid.z * TILES, thread_index_in_simdgroup,
        simdgroup_index_in_threadgroup, simdgroups_per_threadgroup);
"""
_PLAIN = metal.Kernel(
    name="attention_rows",
    files=("matrix_tile", "attention_rows"),
    inputs=("queries", "keys", "values", "scale", "chunk", "count"),
    outputs=("sums", "largest", "totals"),
    row_contiguous=False,
    body="""
    const ulong key_head = threadgroup_position_in_grid.y * ulong(keys_strides[1]);
    const ulong value_head = threadgroup_position_in_grid.y * ulong(values_strides[1]);
    const PlainRows<const device T*> k = {keys + key_head, ulong(keys_strides[2])};
    const PlainRows<const device T*> v = {values + value_head,
                                          ulong(values_strides[2])};
    """
    + _CALL,
)
_PACKED_INPUTS = tuple(
    f"{part}_{kind}"
    for part in ("key", "value")
    for kind in ("words", "scales", "biases")
)
_PACKED = metal.Kernel(
    name="attention_rows_q8",
    files=_PLAIN.files,
    inputs=("queries", *_PACKED_INPUTS, "scale", "chunk", "count"),
    outputs=_PLAIN.outputs,
    row_contiguous=False,
    body="""
    const ulong g = threadgroup_position_in_grid.y;
    const PackedRows<const device uint32_t*, const device T*> k = {
        key_words + g * ulong(key_words_strides[1]),
        key_scales + g * ulong(key_scales_strides[1]),
        key_biases + g * ulong(key_scales_strides[1]), ulong(key_words_strides[2]),
        ulong(key_scales_strides[2])};
    const PackedRows<const device uint32_t*, const device T*> v = {
        value_words + g * ulong(value_words_strides[1]),
        value_scales + g * ulong(value_scales_strides[1]),
        value_biases + g * ulong(value_scales_strides[1]),
        ulong(value_words_strides[2]), ulong(value_scales_strides[2])};
    """
    + _CALL,
)
_COMBINE = metal.Kernel(
    name="attention_combine",
    files=_PLAIN.files,
    inputs=("sums", "largest", "totals", "blocks"),
    outputs=("out",),
    body="""
    threadgroup float weights[MOST_BLOCKS];
    combine_blocks_at<T, WIDTH>(
        sums, largest, totals, out, weights, threadgroup_position_in_grid.z,
        threadgroup_position_in_grid.y, ROWS, uint(blocks),
        thread_position_in_threadgroup.x, threads_per_threadgroup.x);
    """,
)


@dataclass(frozen=True, slots=True)
class PackedHeads:
    """Keys or values in 8 bits.

    Attributes:
        words: [1, G, S, D / 4] uint32.
        scales: [1, G, S, D / 64].
        biases: as ``scales``, laid out like them.
    """

    words: mx.array
    scales: mx.array
    biases: mx.array

    @property
    def numbers(self) -> mx.array:
        """[1, G, S, D] in the type of the scales."""
        return mx.dequantize(
            self.words, self.scales, self.biases, group_size=PACKED_GROUP, bits=8
        )


@dataclass(frozen=True, slots=True)
class Blocking:
    """How keys and rows are divided.

    Attributes:
        chunk: keys of a block.
        blocks: of the keys.
        tiles: times eight rows in a threadgroup.
        groups: threadgroups that share the rows.
        threads: of a threadgroup.
    """

    chunk: int
    blocks: int
    tiles: int
    groups: int
    threads: int

    @classmethod
    def of(
        cls, rows: int, share: int, heads: int, count: int, width: int, kernel: str
    ) -> Blocking:
        """For ``rows`` rows of ``share`` query heads on each of ``heads`` key heads.

        The blocks do not follow from the length of the block of rows, so that a row's
        sums do not either.
        """
        parts = _parts(width)
        chunk = -(-_KEYS_PER_ROW * _USUAL_ROWS * share // _STEP) * _STEP
        while -(-count // chunk) * heads > _MOST_IN_FLIGHT:
            chunk *= 2
        blocks = -(-count // chunk)
        tiles = -(-rows * share // _TILE)
        most = metal.thread_limit(kernel) // (metal.SIMD_WIDTH * parts)
        wanted = -(-_FEWEST_IN_FLIGHT // (heads * blocks))
        here = max(1, min(tiles, most, -(-tiles // wanted)))
        threads = here * parts * metal.SIMD_WIDTH
        return cls(chunk, blocks, here, -(-tiles // here), threads)


def attention_rows(
    queries: mx.array,
    keys: mx.array,
    values: mx.array,
    scale: float,
    *,
    causal: bool,
) -> mx.array:
    """softmax(scale * Q K^T) V.

    Args:
        queries: [1, H, L, D], any float dtype.
        keys: [1, G, S, D], G dividing H, S at least L.
        values: as ``keys``.
        scale: of the scores.
        causal: a row sees the keys up to its own, the rows being the last of them;
            False lets it see all.

    Returns:
        [1, H, L, D] in the queries' type.
    """
    if _eligible(queries, keys.shape, keys.dtype, values.dtype):
        shape = shape_of(queries, keys.shape, causal=causal)
        if gate.allows("attention_rows", *shape):
            return _launch(_PLAIN, queries, [keys, values], keys.shape, scale, causal)
    mask = "causal" if causal else None
    return mx.fast.scaled_dot_product_attention(
        queries, keys, values, scale=scale, mask=mask
    )


def attention_rows_q8(
    queries: mx.array,
    keys: PackedHeads,
    values: PackedHeads,
    scale: float,
    *,
    causal: bool,
) -> mx.array:
    """:func:`attention_rows` of keys and values in 8 bits."""
    size = (*keys.words.shape[:-1], keys.words.shape[-1] * 4)
    if _eligible(queries, size, keys.scales.dtype, values.scales.dtype):
        shape = shape_of(queries, size, causal=causal)
        if gate.allows("attention_rows_q8", *shape):
            parts = [p for m in (keys, values) for p in (m.words, m.scales, m.biases)]
            return _launch(_PACKED, queries, parts, size, scale, causal)
    return attention_rows(queries, keys.numbers, values.numbers, scale, causal=causal)


def shape_of(queries: mx.array, keys: tuple[int, ...], *, causal: bool) -> gate.Shape:
    """What the verdict on a call is filed under; lengths count in powers of two."""
    _, heads, rows, width = queries.shape
    length = min(keys[2].bit_length(), _LONGEST_BITS)
    return rows, heads, keys[1], width, length, causal, str(queries.dtype)


def _parts(width: int) -> int:
    """Simdgroups that divide a head of ``width`` channels."""
    return 2 if width > _WIDE else 1


def _eligible(queries: mx.array, keys: tuple[int, ...], *dtypes: mx.Dtype) -> bool:
    batch, heads, rows, width = queries.shape
    return (
        batch == 1
        and FEWEST_ROWS <= rows <= MOST_ROWS
        and width in _WIDTHS
        and keys[3] == width
        and heads % keys[1] == 0
        and keys[2] >= rows
        and all(dtype == queries.dtype for dtype in dtypes)
    )


def _launch(
    kernel: metal.Kernel,
    queries: mx.array,
    parts: list[mx.array],
    keys: tuple[int, ...],
    scale: float,
    causal: bool,  # noqa: FBT001 - one of many numbers that describe the call
) -> mx.array:
    _, heads, length, width = queries.shape
    groups, count = keys[1], keys[2]
    share = heads // groups
    rows = share * length
    plan = Blocking.of(length, share, groups, count, width, kernel.name)
    simdgroups = plan.threads // metal.SIMD_WIDTH
    log2e = 1.4426950408889634
    template: list[Any] = [("T", queries.dtype), ("WIDTH", width), ("ROWS", rows)]
    partial = (groups, plan.blocks, rows)
    pieces = metal.build(kernel)(
        inputs=[queries, *parts, scale * log2e, plan.chunk, count],
        template=[
            *template,
            ("PARTS", _parts(width)),
            ("CAUSAL", causal),
            ("LENGTH", length),
            ("TILES", plan.tiles),
            ("EXCHANGE", 128 * simdgroups if _parts(width) == 2 else 1),
        ],
        grid=(plan.blocks * plan.threads, groups, plan.groups),
        threadgroup=(plan.threads, 1, 1),
        output_shapes=[(*partial, width), partial, partial],
        output_dtypes=[mx.float32] * 3,
    )
    threads = metal.whole_simdgroups(width, _COMBINE.name)
    return metal.build(_COMBINE)(
        inputs=[*pieces, plan.blocks],
        template=[*template, ("MOST_BLOCKS", _MOST_IN_FLIGHT)],
        grid=(threads, rows, groups),
        threadgroup=(threads, 1, 1),
        output_shapes=[queries.shape],
        output_dtypes=[queries.dtype],
    )[0]
