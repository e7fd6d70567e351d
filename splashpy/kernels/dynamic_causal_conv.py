# SPDX-License-Identifier: Apache-2.0
"""The DFlash 2 drafter's short causal convolution with predicted taps.

Each row's taps are a learned base plus a correction predicted for that row, shared by
``group_size`` neighbouring channels. Rows before the block count as zero, so nothing
is carried from one block to the next.

Shapes: B batch, L block rows, D channels, W taps, G channels per group.
Source: ``_grouped_dynamic_convolve`` in dflash 0.1.0, model_mlx.py (MIT); there every
product is rounded to the working dtype, here the sum is float32 and rounded once.
"""

from __future__ import annotations

import mlx.core as mx


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
    return _reference(x, dynamic, base, group_size)


def _reference(
    x: mx.array, dynamic: mx.array, base: mx.array, group_size: int
) -> mx.array:
    # A group's channels get an axis of their own, so that its correction need not be
    # repeated for each of them.
    taps = base.shape[0]
    hidden = x.astype(mx.float32)[..., None, :]
    hidden = mx.unflatten(hidden, -1, (-1, group_size))  # [..., L, 1, D/G, G]
    corrections = mx.split(dynamic.astype(mx.float32)[..., None], taps, axis=-3)
    kernel = mx.split(mx.unflatten(base, -1, (-1, group_size)), taps)
    total = (kernel[0] + corrections[0]) * hidden
    for w in range(1, min(taps, x.shape[-2])):
        earlier = [(0, 0)] * hidden.ndim
        earlier[-4] = (w, 0)
        shifted = mx.pad(hidden[..., :-w, :, :, :], earlier)
        total = total + (kernel[w] + corrections[w]) * shifted
    return mx.flatten(total, -3).astype(x.dtype)


def _check(x: mx.array, dynamic: mx.array, base: mx.array, group_size: int) -> None:
    channels = x.shape[-1]
    if channels % group_size:
        raise ValueError(f"group_size {group_size} does not divide {channels} channels")
    taps = base.shape[0]
    wanted = (*x.shape[:-1], taps, channels // group_size)
    if dynamic.shape != wanted or base.shape != (taps, channels):
        raise ValueError(
            f"x {x.shape} needs dynamic {wanted} and base {(taps, channels)}, "
            f"got {dynamic.shape} and {base.shape}"
        )
