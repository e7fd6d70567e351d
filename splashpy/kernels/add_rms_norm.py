# SPDX-License-Identifier: Apache-2.0
"""A residual addition and the RMS norm of its sum, in one launch.

stream = x + residual, rounded to the stream's type;
normed = stream * weight / sqrt(mean over channels of stream^2 + eps), in float32 and
rounded once.

Shapes: R rows, D channels.
"""

from __future__ import annotations

import math

import mlx.core as mx

from splashpy.kernels import gate, metal

CHANNELS_PER_THREAD = 4
"""A row's thread keeps this many channels, or more where a row is very wide."""

_KERNEL = metal.Kernel(
    name="add_rms_norm",
    files=("threadgroup_sum", "add_rms_norm"),
    inputs=("x", "residual", "weight", "eps"),
    outputs=("stream", "normed"),
    body="""
    threadgroup float slots[32];
    add_rms_norm_at<T, PER>(
        x, residual, weight, stream, normed, eps, slots,
        threadgroup_position_in_grid.y, CHANNELS, thread_position_in_threadgroup.x,
        threads_per_threadgroup.x, thread_index_in_simdgroup,
        simdgroup_index_in_threadgroup, simdgroups_per_threadgroup);
    """,
)


def add_rms_norm(
    x: mx.array, residual: mx.array, weight: mx.array, eps: float
) -> tuple[mx.array, mx.array]:
    """The new stream and its norm.

    Args:
        x: [..., D], any float type.
        residual: as ``x``.
        weight: [D].
        eps: added to the mean square.

    Returns:
        stream and normed, [..., D] each, in x's type.

    Raises:
        ValueError: the shapes do not agree.
    """
    if x.shape != residual.shape or weight.shape != x.shape[-1:]:
        raise ValueError(
            f"x {x.shape}, residual {residual.shape} and weight {weight.shape} differ"
        )
    if x.size and gate.allows("add_rms_norm", *shape_of(x)):
        return _metal(x, residual, weight, eps)
    return _reference(x, residual, weight, eps)


def shape_of(x: mx.array) -> gate.Shape:
    """What the verdict on a call with this input is filed under."""
    return math.prod(x.shape[:-1]), x.shape[-1], str(x.dtype)


def row_threads(channels: int, kernel: str) -> tuple[int, int]:
    """Threads for one row, and channels each of them keeps."""
    threads = metal.whole_simdgroups(-(-channels // CHANNELS_PER_THREAD), kernel)
    return threads, -(-channels // threads)


def _reference(
    x: mx.array, residual: mx.array, weight: mx.array, eps: float
) -> tuple[mx.array, mx.array]:
    stream = x + residual
    return stream, mx.fast.rms_norm(stream, weight, eps)


def _metal(
    x: mx.array, residual: mx.array, weight: mx.array, eps: float
) -> tuple[mx.array, mx.array]:
    rows, channels = math.prod(x.shape[:-1]), x.shape[-1]
    threads, per = row_threads(channels, _KERNEL.name)
    stream, normed = metal.build(_KERNEL)(
        inputs=[x, residual, weight, eps],
        template=[("T", x.dtype), ("PER", per), ("CHANNELS", channels)],
        grid=(threads, rows, 1),
        threadgroup=(threads, 1, 1),
        output_shapes=[x.shape, x.shape],
        output_dtypes=[x.dtype, x.dtype],
    )
    return stream, normed
