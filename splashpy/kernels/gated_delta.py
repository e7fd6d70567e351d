# SPDX-License-Identifier: Apache-2.0
"""Gated DeltaNet over the few rows of a block, with its way back deferred.

For each row, with a key k, a value v and the state S of one head, in float32:

    S <- g S + (b (v - S g k)) k^T,   y = S q,
    g = exp(-exp(A) softplus(a + bias)),   b = sigmoid(rate).

Three operations. :func:`prework` turns the projections of a block into queries, keys
and values. :func:`verify` gives the outputs of a block's rows and stores the state
*before* the block, which it makes by first running the kept rows of the block before:
the state is read once and written once per cycle, whatever is taken back.
:func:`replay` gives the state after some rows where something else wants it.

Shapes: T rows, P rows of the block before, Hk/Hv key/value heads, Dk/Dv their widths,
C = 2 Hk Dk + Hv Dv channels of the convolution, W its taps.
Source: mlx-lm 0.32.2, models/qwen3_5.py and gated_delta.py (MIT).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import mlx.core as mx
import mlx.nn as nn

from splashpy.kernels import gate, metal

MOST_ROWS = 16
_EPS = 1e-6  # added to the sum of squares of a query or key
_CHANNELS = 4  # value channels of a threadgroup, one simdgroup each

_STATE = """
    const uint lane = thread_index_in_simdgroup;
    const uint head = thread_position_in_grid.z;
    const uint channel = thread_position_in_grid.y;
    const uint at = (head * VALUE_WIDTH + channel) * WIDTH + lane * PER;
    float state[PER];
    for (uint i = 0; i < PER; ++i) state[i] = before[at + i];
    replay_rows<PER>(
        state, old_keys, old_values,
        gates_of_rows(old_decay, old_rate, log_decay, bias, uint(kept), VALUE_HEADS,
                      head, lane),
        uint(kept), KEY_HEADS, VALUE_HEADS, WIDTH, VALUE_WIDTH, head, channel, lane);
    for (uint i = 0; i < PER; ++i) after[at + i] = state[i];
"""
_OLD = (
    *("before", "old_keys", "old_values", "old_decay", "old_rate"),
    *("log_decay", "bias", "kept"),
)
_REPLAY = metal.Kernel(
    name="gated_delta_replay",
    files=("gated_delta",),
    inputs=_OLD,
    outputs=("after",),
    body=_STATE,
)
_VERIFY = metal.Kernel(
    name="gated_delta_verify",
    files=("gated_delta",),
    inputs=(*_OLD, "queries", "keys", "values", "decay", "rate", "rows"),
    outputs=("after", "out"),
    body=_STATE
    + """
    verify_rows_at<T, PER>(
        state, queries, keys, values,
        gates_of_rows(decay, rate, log_decay, bias, uint(rows), VALUE_HEADS, head,
                      lane),
        out, uint(rows), KEY_HEADS, VALUE_HEADS, WIDTH, VALUE_WIDTH, head, channel,
        lane);
    """,
)
_PREWORK = metal.Kernel(
    name="gated_delta_prework",
    files=("gated_delta",),
    inputs=("before", "inputs", "weight", "kept", "eps"),
    outputs=("queries", "keys", "values", "rows"),
    body="""
    prework_at<T, TAPS, KEY_PER, VALUE_PER>(
        before, inputs, weight, queries, keys, values, rows, uint(kept), eps,
        thread_position_in_grid.y, thread_position_in_grid.z, KEY_HEADS, VALUE_HEADS,
        thread_index_in_simdgroup);
    """,
)


@dataclass(frozen=True, slots=True)
class Geometry:
    """Heads of a layer.

    Attributes:
        key_heads: Hk.
        value_heads: Hv, a multiple of Hk; neighbouring ones share a key head.
        key_width: Dk.
        value_width: Dv.
    """

    key_heads: int
    value_heads: int
    key_width: int
    value_width: int

    @property
    def shape(self) -> tuple[int, int, int]:
        """Of the state: [Hv, Dv, Dk]."""
        return self.value_heads, self.value_width, self.key_width


@dataclass(frozen=True, slots=True)
class Decay:
    """What turns projections into decays and rates.

    Attributes:
        log_decay: A, [Hv].
        bias: [Hv].
    """

    log_decay: mx.array
    bias: mx.array


@dataclass(frozen=True, slots=True)
class Rows:
    """What the recurrence reads of some rows.

    Attributes:
        keys: [T, Hk, Dk], normed.
        values: [T, Hv, Dv].
        decay: a, [T, Hv].
        rate: [T, Hv], before the sigmoid.
    """

    keys: mx.array
    values: mx.array
    decay: mx.array
    rate: mx.array

    @property
    def parts(self) -> tuple[mx.array, ...]:
        """All four."""
        return self.keys, self.values, self.decay, self.rate

    def first(self, count: int) -> Rows:
        """The first rows."""
        return Rows(*(part[:count] for part in self.parts))


@dataclass(frozen=True, slots=True)
class Pending:
    """A state that is not computed yet.

    Attributes:
        before: [Hv, Dv, Dk] float32, the state before the rows.
        rows: of a block; None where there are none.
        kept: how many of them count.
    """

    before: mx.array
    rows: Rows | None = None
    kept: int = 0


@dataclass(frozen=True, slots=True)
class Prepared:
    """A block ready for the recurrence.

    Attributes:
        queries: [T, Hk, Dk], normed and scaled.
        keys: [T, Hk, Dk], normed.
        values: [T, Hv, Dv].
        window: [W - 1 + T, C], the convolution's inputs, those before the block first.
    """

    queries: mx.array
    keys: mx.array
    values: mx.array
    window: mx.array


def prework(
    before: mx.array, kept: int, inputs: mx.array, weight: mx.array, heads: Geometry
) -> Prepared:
    """Convolve, open, split and norm the projections of a block.

    Args:
        before: [n, C], inputs of the convolution, of which rows ``kept`` to
            ``kept`` + W - 2 come before the block.
        kept: see ``before``.
        inputs: [T, C], projections of the block: queries, keys, values.
        weight: [C, W].
        heads: how channels are divided.
    """
    shape = (inputs.shape[0], *inputs.shape[1:], weight.shape[1], str(inputs.dtype))
    if _fits(heads, inputs.shape[0]) and gate.allows("gated_delta_prework", *shape):
        return _prework_metal(before, kept, inputs, weight, heads)
    return _prework_reference(before, kept, inputs, weight, heads)


def verify(
    pending: Pending, queries: mx.array, rows: Rows, decay: Decay
) -> tuple[mx.array, mx.array]:
    """Run a block on a state that is not computed yet.

    Args:
        pending: the state before the block.
        queries: [T, Hk, Dk].
        rows: of the block.
        decay: of the layer.

    Returns:
        Outputs of the rows, [T, Hv, Dv] in the values' type, and the state before the
        block, [Hv, Dv, Dk] float32.
    """
    heads = geometry(pending, rows)
    if _fits(heads, rows.keys.shape[0]) and gate.allows(
        "gated_delta_verify", *shape_of(rows)
    ):
        return _verify_metal(pending, queries, rows, decay, heads)
    state = replay(pending, decay)
    return _update(state, queries, rows, decay)[0], state


def replay(pending: Pending, decay: Decay) -> mx.array:
    """The state after the kept rows, [Hv, Dv, Dk] float32."""
    rows = pending.rows
    if rows is None or not pending.kept:
        return pending.before
    heads = geometry(pending, rows)
    if _fits(heads, pending.kept) and gate.allows(
        "gated_delta_verify", *shape_of(rows)
    ):
        return _launch(_REPLAY, pending, decay, heads)[0]
    kept = rows.first(pending.kept)
    return _update(pending.before, kept.keys, kept, decay)[1]


def geometry(pending: Pending, rows: Rows) -> Geometry:
    """The heads of a state and its rows."""
    value_heads, value_width, key_width = pending.before.shape
    return Geometry(rows.keys.shape[1], value_heads, key_width, value_width)


def shape_of(rows: Rows) -> gate.Shape:
    """What the verdict on a block is filed under."""
    return *rows.keys.shape, *rows.values.shape[1:], str(rows.values.dtype)


def _fits(heads: Geometry, rows: int) -> bool:
    widths = (heads.key_width, heads.value_width)
    return (
        1 <= rows <= MOST_ROWS
        and heads.value_heads % heads.key_heads == 0
        and all(width % metal.SIMD_WIDTH == 0 for width in widths)
    )


def _update(
    state: mx.array, queries: mx.array, rows: Rows, decay: Decay
) -> tuple[mx.array, mx.array]:
    """Outputs and the state after all rows, by MLX."""
    names = (rows.decay, decay.bias, decay.log_decay, rows.rate)
    a, bias, log_decay, rate = (part.astype(mx.float32) for part in names)
    gates = mx.exp(-mx.exp(log_decay) * nn.softplus(a + bias))
    parts = (rows.keys, rows.values, gates, mx.sigmoid(rate))
    keys, values, g, b = (part.astype(mx.float32)[None] for part in parts)
    wide = queries.astype(mx.float32)[None]
    out, after = mx.fast.gated_delta_update(wide, keys, values, g, b, state[None])
    return out[0].astype(rows.values.dtype), after[0]


def _prework_reference(
    before: mx.array, kept: int, inputs: mx.array, weight: mx.array, heads: Geometry
) -> Prepared:
    taps = weight.shape[1]
    window = mx.concatenate([before[kept : kept + taps - 1], inputs])
    rows = inputs.shape[0]
    total = sum(
        weight[:, w].astype(mx.float32) * window[w : w + rows].astype(mx.float32)
        for w in range(taps)
    )
    opened = nn.silu(mx.array(total)).astype(inputs.dtype)
    size = heads.key_heads * heads.key_width
    queries, keys, values = mx.split(opened, [size, 2 * size], axis=-1)
    scale = heads.key_width**-0.5
    norm = partial(mx.fast.rms_norm, weight=None, eps=_EPS * scale**2)
    queries, keys = (
        norm(mx.unflatten(part.astype(mx.float32), -1, (heads.key_heads, -1)))
        for part in (queries, keys)
    )
    return Prepared(
        (queries * scale**2).astype(inputs.dtype),
        (keys * scale).astype(inputs.dtype),
        mx.unflatten(values, -1, (heads.value_heads, -1)),
        window,
    )


def _prework_metal(
    before: mx.array, kept: int, inputs: mx.array, weight: mx.array, heads: Geometry
) -> Prepared:
    rows, channels = inputs.shape
    taps, slots = weight.shape[1], 2 * heads.key_heads + heads.value_heads
    queries = (rows, heads.key_heads, heads.key_width)
    made = metal.build(_PREWORK)(
        inputs=[before, inputs, weight, kept, _EPS / heads.key_width],
        template=[
            ("T", inputs.dtype),
            ("TAPS", taps),
            ("KEY_PER", heads.key_width // metal.SIMD_WIDTH),
            ("VALUE_PER", heads.value_width // metal.SIMD_WIDTH),
            ("KEY_HEADS", heads.key_heads),
            ("VALUE_HEADS", heads.value_heads),
        ],
        grid=(metal.SIMD_WIDTH, rows, slots),
        threadgroup=(metal.SIMD_WIDTH, 1, 1),
        output_shapes=[
            queries,
            queries,
            (rows, heads.value_heads, heads.value_width),
            (taps - 1 + rows, channels),
        ],
        output_dtypes=[inputs.dtype] * 4,
    )
    return Prepared(*made)


def _verify_metal(
    pending: Pending, queries: mx.array, rows: Rows, decay: Decay, heads: Geometry
) -> tuple[mx.array, mx.array]:
    count = rows.keys.shape[0]
    block = [queries, *rows.parts, count]
    after, out = _launch(_VERIFY, pending, decay, heads, block, rows.values)
    return out, after


def _launch(
    kernel: metal.Kernel,
    pending: Pending,
    decay: Decay,
    heads: Geometry,
    block: list[Any] | None = None,
    like: mx.array | None = None,
) -> list[mx.array]:
    """Replay the kept rows; with a block also its outputs, shaped as ``like``."""
    block = block or []
    # Without rows before it, a block's own stand in for them; none of them is read.
    old = pending.rows.parts if pending.rows else tuple(block[1:5])
    kept = pending.kept if pending.rows else 0
    allowed = metal.whole_simdgroups(_CHANNELS * metal.SIMD_WIDTH, kernel.name)
    channels = 1 << (allowed // metal.SIMD_WIDTH).bit_length() - 1
    template: list[Any] = [
        ("PER", heads.key_width // metal.SIMD_WIDTH),
        ("WIDTH", heads.key_width),
        ("VALUE_WIDTH", heads.value_width),
        ("KEY_HEADS", heads.key_heads),
        ("VALUE_HEADS", heads.value_heads),
    ]
    shapes, dtypes = [pending.before.shape], [mx.float32]
    if like is not None:
        template.append(("T", like.dtype))
        shapes, dtypes = [*shapes, like.shape], [*dtypes, like.dtype]
    return metal.build(kernel)(
        inputs=[
            *(pending.before, *old, decay.log_decay, decay.bias, kept),
            *block,
        ],
        template=template,
        grid=(metal.SIMD_WIDTH, heads.value_width, heads.value_heads),
        threadgroup=(metal.SIMD_WIDTH, channels, 1),
        output_shapes=shapes,
        output_dtypes=dtypes,
    )
