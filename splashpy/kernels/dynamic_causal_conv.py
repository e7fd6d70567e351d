# SPDX-License-Identifier: Apache-2.0
"""The DFlash 2 drafter's short causal convolution with predicted taps.

Each row's taps are a learned base plus a correction predicted for that row, shared by
``group_size`` neighbouring channels. Rows before the block count as zero, so nothing
is carried from one block to the next.

A sublayer is convolved on both sides, and both corrections are predicted together from
its normed input. The one before it stands alone; the one after it ends in the residual
stream, whose norm the next sublayer reads.

Shapes: B batch, L block rows, D channels, W taps, G channels per group.
Source: ``_grouped_dynamic_convolve`` in dflash 0.1.0, model_mlx.py (MIT); there every
product is rounded to the working dtype, here the sum is float32 and rounded once.
"""

from __future__ import annotations

import math
from typing import Any

import mlx.core as mx

from splashpy.kernels import gate, metal
from splashpy.kernels.add_rms_norm import row_threads

_PREPARE = metal.Kernel(
    name="conv_prepare",
    files=("threadgroup_sum", "add_rms_norm", "dynamic_causal_conv"),
    inputs=("x", "predicted", "base", "length"),
    outputs=("out",),
    body="""
    conv_prepare_at<T, TAPS, GROUP_SIZE>(
        x, predicted, base, out, thread_position_in_grid.x, thread_position_in_grid.y,
        CHANNELS, uint(length));
    """,
)
_FINISH = metal.Kernel(
    name="conv_finish",
    files=_PREPARE.files,
    inputs=("x", "predicted", "base", "residual", "weight", "eps", "length"),
    outputs=("stream", "normed"),
    body="""
    threadgroup float slots[32];
    conv_finish_at<T, TAPS, GROUP_SIZE, PER>(
        x, predicted, base, residual, weight, stream, normed, eps, slots,
        threadgroup_position_in_grid.y, uint(length), CHANNELS,
        thread_position_in_threadgroup.x, threads_per_threadgroup.x,
        thread_index_in_simdgroup, simdgroup_index_in_threadgroup,
        simdgroups_per_threadgroup);
    """,
)
_FINISH_PLAIN = metal.Kernel(
    name="conv_finish_plain",
    files=_PREPARE.files,
    inputs=("x", "predicted", "base", "residual", "length"),
    outputs=("stream",),
    body="""
    conv_add_at<T, TAPS, GROUP_SIZE>(
        x, predicted, base, residual, stream, thread_position_in_grid.x,
        thread_position_in_grid.y, CHANNELS, uint(length));
    """,
)
_THREADS = 256
_MOST_TAPS = 4

Norm = tuple[mx.array, float]
"""Weight [D] of an RMS norm, and what is added to the mean square."""


def dynamic_causal_conv(
    x: mx.array, dynamic: mx.array, base: mx.array, *, group_size: int
) -> mx.array:
    """Convolve every block row with its own taps.

    out[t,c] = sum over w of (base[w,c] + dynamic[t,w,c//G]) * x[t-w,c].

    Args:
        x: [..., L, D] hidden rows, any float dtype.
        dynamic: [..., L, W, D/G] predicted corrections.
        base: [W, D] learned taps; w = 0 is the row itself.
        group_size: G.

    Returns:
        [..., L, D] in x's dtype, accumulated in float32.

    Raises:
        ValueError: the three shapes do not agree, or G does not divide D.
    """
    _check(x, dynamic, base, group_size)
    return _convolved(x, _taps(dynamic), base, group_size).astype(x.dtype)


def conv_prepare(
    x: mx.array, predicted: mx.array, base: mx.array, *, group_size: int
) -> mx.array:
    """The convolution before a sublayer.

    Args:
        x: [..., L, D] the sublayer's normed input, any float dtype.
        predicted: [..., L, 2 W, D/G] corrections; those of this side come first.
        base: [W, D] learned taps of this side.
        group_size: G.

    Returns:
        [..., L, D] in x's dtype.

    Raises:
        ValueError: the shapes do not agree.
    """
    _check(x, predicted, base, group_size, sides=2)
    if _eligible(x, base) and gate.allows("conv_prepare", *shape_of(x, base)):
        return _prepare_metal(x, predicted, base, group_size)
    return _prepare_reference(x, predicted, base, group_size)


def conv_finish(
    x: mx.array,
    predicted: mx.array,
    base: mx.array,
    residual: mx.array,
    norm: Norm | None = None,
    *,
    group_size: int,
) -> tuple[mx.array, mx.array | None]:
    """The convolution after a sublayer, added to the residual stream.

    Args:
        x: [..., L, D] what the sublayer gave.
        predicted: [..., L, 2 W, D/G] corrections; those of this side come second.
        base: [W, D] learned taps of this side.
        residual: [..., L, D] the stream.
        norm: of the next sublayer.
        group_size: G.

    Returns:
        The stream, rounded once, and its norm where one was asked for.

    Raises:
        ValueError: the shapes do not agree.
    """
    _check(x, predicted, base, group_size, sides=2)
    if residual.shape != x.shape:
        raise ValueError(f"x {x.shape} and residual {residual.shape} differ")
    if _eligible(x, base) and gate.allows("conv_finish", *shape_of(x, base)):
        return _finish_metal(x, predicted, base, residual, norm, group_size)
    return _finish_reference(x, predicted, base, residual, norm, group_size)


def shape_of(x: mx.array, base: mx.array) -> gate.Shape:
    """What the verdict on a call with these inputs is filed under."""
    rows = math.prod(x.shape[:-1])
    return rows, x.shape[-1], base.shape[0], str(x.dtype)


def _eligible(x: mx.array, base: mx.array) -> bool:
    return x.size > 0 and base.shape[0] <= _MOST_TAPS


def _prepare_reference(
    x: mx.array, predicted: mx.array, base: mx.array, group_size: int
) -> mx.array:
    before = _taps(predicted)[: base.shape[0]]
    return _convolved(x, before, base, group_size).astype(x.dtype)


def _prepare_metal(
    x: mx.array, predicted: mx.array, base: mx.array, group_size: int
) -> mx.array:
    rows, channels = math.prod(x.shape[:-1]), x.shape[-1]
    threads = metal.whole_simdgroups(min(channels, _THREADS), _PREPARE.name)
    return metal.build(_PREPARE)(
        inputs=[x, predicted, base, x.shape[-2]],
        template=_template(x, base, group_size),
        grid=(-(-channels // threads) * threads, rows, 1),
        threadgroup=(threads, 1, 1),
        output_shapes=[x.shape],
        output_dtypes=[x.dtype],
    )[0]


def _finish_reference(
    x: mx.array,
    predicted: mx.array,
    base: mx.array,
    residual: mx.array,
    norm: Norm | None,
    group_size: int,
) -> tuple[mx.array, mx.array | None]:
    after = _taps(predicted)[base.shape[0] :]
    total = _convolved(x, after, base, group_size)
    stream = (residual.astype(mx.float32) + total).astype(residual.dtype)
    return stream, None if norm is None else mx.fast.rms_norm(stream, *norm)


def _finish_metal(
    x: mx.array,
    predicted: mx.array,
    base: mx.array,
    residual: mx.array,
    norm: Norm | None,
    group_size: int,
) -> tuple[mx.array, mx.array | None]:
    rows, channels = math.prod(x.shape[:-1]), x.shape[-1]
    template = _template(x, base, group_size)
    inputs = [x, predicted, base, residual]
    if norm is None:
        threads = metal.whole_simdgroups(min(channels, _THREADS), _FINISH_PLAIN.name)
        (stream,) = metal.build(_FINISH_PLAIN)(
            inputs=[*inputs, x.shape[-2]],
            template=template,
            grid=(-(-channels // threads) * threads, rows, 1),
            threadgroup=(threads, 1, 1),
            output_shapes=[x.shape],
            output_dtypes=[residual.dtype],
        )
        return stream, None
    threads, per = row_threads(channels, _FINISH.name)
    stream, normed = metal.build(_FINISH)(
        inputs=[*inputs, *norm, x.shape[-2]],
        template=[*template, ("PER", per)],
        grid=(threads, rows, 1),
        threadgroup=(threads, 1, 1),
        output_shapes=[x.shape, x.shape],
        output_dtypes=[residual.dtype, residual.dtype],
    )
    return stream, normed


def _template(
    x: mx.array, base: mx.array, group_size: int
) -> list[tuple[str, mx.Dtype | int]]:
    return [
        ("T", x.dtype),
        ("TAPS", base.shape[0]),
        ("GROUP_SIZE", group_size),
        ("CHANNELS", x.shape[-1]),
    ]


def _taps(predicted: mx.array) -> list[mx.array]:
    """Corrections of every tap, [..., L, 1, D/G, 1] each."""
    wide = predicted.astype(mx.float32)[..., None]
    parts: Any = mx.split(wide, predicted.shape[-2], axis=-3)
    return parts


def _convolved(
    x: mx.array, corrections: list[mx.array], base: mx.array, group_size: int
) -> mx.array:
    """The sum over the taps, [..., L, D] float32."""
    # A group's channels get an axis of their own, so that its correction need not be
    # repeated for each of them.
    taps = base.shape[0]
    hidden = x.astype(mx.float32)[..., None, :]
    hidden = mx.unflatten(hidden, -1, (-1, group_size))  # [..., L, 1, D/G, G]
    kernel = mx.split(mx.unflatten(base, -1, (-1, group_size)), taps)
    total = (kernel[0] + corrections[0]) * hidden
    for w in range(1, min(taps, x.shape[-2])):
        earlier = [(0, 0)] * hidden.ndim
        earlier[-4] = (w, 0)
        shifted = mx.pad(hidden[..., :-w, :, :, :], earlier)
        total = total + (kernel[w] + corrections[w]) * shifted
    return mx.flatten(total, -3)


def _check(
    x: mx.array, dynamic: mx.array, base: mx.array, group_size: int, *, sides: int = 1
) -> None:
    channels = x.shape[-1]
    if channels % group_size:
        raise ValueError(f"group_size {group_size} does not divide {channels} channels")
    taps = base.shape[0]
    wanted = (*x.shape[:-1], sides * taps, channels // group_size)
    if dynamic.shape != wanted or base.shape != (taps, channels):
        raise ValueError(
            f"x {x.shape} needs dynamic {wanted} and base {(taps, channels)}, "
            f"got {dynamic.shape} and {base.shape}"
        )
