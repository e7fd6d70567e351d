# SPDX-License-Identifier: Apache-2.0
"""Weights to packed codes, by the rule of MLX's Metal kernel, on every platform.

MLX has two affine quantizers that differ in the last bit: the one for CPUs rounds
halves to even and lets the upper end of a group be negative, the one for Metal rounds
them away from zero and starts the upper end at zero. Packages must not depend on who
packed them, so this is the Metal rule, in float32, for one group of weights w::

    lo, hi = min(w), max(0, max(w));  n = 2^bits - 1
    s = max((hi - lo) / n, 1e-7)
    edge, s = (lo, s) if |lo| > |hi| else (hi, -s)
    q = round(edge / s)
    s, b = (s, 0) if q == 0 else (edge / q, edge)
    code = clamp(round((w - b) / s), 0, n)

Scale and bias are rounded to the type of the weights after the codes are found.

Source: affine_quantize in mlx/backend/metal/kernels/quantized.h of MLX 0.32.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from splashpy.errors import ModelKindError
from splashpy.package.weights.tensor import Tensor, to_bfloat16

BITS = (4, 8)
GROUP_SIZES = (32, 64, 128)

_CHUNK_VALUES = 1 << 16  # 256 KiB of float32: every pass over it stays in the cache
_SMALLEST_SCALE = np.float32(1e-7)
# Adding the largest float below one half and cutting off rounds halves away from zero;
# adding one half would also lift the number just below it.
_ALMOST_HALF = np.float32(0.49999997)


@dataclass(frozen=True, slots=True)
class PackedTensor:
    """A quantized matrix, as ``mx.quantize`` gives it.

    Attributes:
        weight: [..., N, K * bits / 32] codes in words, lowest bits first.
        scales, biases: [..., N, K / group size], of the type of the weights.
    """

    weight: Tensor
    scales: Tensor
    biases: Tensor


def quantize(values: Tensor, *, group_size: int, bits: int, name: str) -> PackedTensor:
    """Pack a tensor along its last axis.

    Args:
        values: [..., N, K] in BF16, F16 or F32; K is a multiple of ``group_size``.
        group_size: weights that share scale and bias.
        bits: 4 or 8.
        name: of the tensor, for the message.

    Raises:
        ModelKindError: a weight is no finite number.
    """
    *lead, columns = values.shape
    groups = values.data.reshape(-1, group_size)
    codes = np.empty((len(groups), group_size * bits // 8), np.uint8)
    scales = np.empty(len(groups), np.float32)
    biases = np.empty(len(groups), np.float32)
    step = max(1, _CHUNK_VALUES // group_size)

    def work(starts: range) -> bool:
        scratch = _Scratch(step, group_size)
        finite = True
        for start in starts:
            part = slice(start, start + step)
            chunk = scratch.load(values.dtype, groups[part])
            with np.errstate(all="ignore"):  # what is no number shows in the scale
                scale, bias = _scale_and_bias(chunk, scratch.halves, bits)
                _pack(chunk, scale, bias, bits, scratch.whole, codes[part])
            scales[part], biases[part] = scale, bias
            finite &= bool(np.isfinite(scale).all() and np.isfinite(bias).all())
        return finite

    if not all(_shared(work, range(0, len(groups), step))):
        raise ModelKindError(f"{name}: a weight is not a finite number")
    shape = (*lead, columns // group_size)
    weight = codes.view(np.uint32).reshape(*lead, columns * bits // 32)
    return PackedTensor(
        Tensor("U32", weight),
        _as_stored(scales.reshape(shape), values.dtype),
        _as_stored(biases.reshape(shape), values.dtype),
    )


class _Scratch:
    """Arrays one thread uses again for every chunk.

    New ones each time would cost more than the arithmetic.
    """

    def __init__(self, rows: int, group_size: int):
        self.values = np.empty((rows, group_size), np.float32)
        self.halves = np.empty((rows, group_size // 2), np.float32)
        self.whole = np.empty((rows, group_size), np.uint8)

    def load(self, dtype: str, groups: np.ndarray) -> np.ndarray:
        """The groups as float32."""
        chunk = self.values[: len(groups)]
        if dtype == "BF16":  # the upper half of a float32
            bits = chunk.view(np.uint32)
            np.left_shift(groups, 16, out=bits, dtype=np.uint32, casting="unsafe")
        else:
            chunk[...] = groups
        return chunk


def _shared(work: Callable[[range], bool], starts: range) -> list[bool]:
    """Share the starts among all processors, where there are several of either."""
    workers = min(len(starts), os.cpu_count() or 1)
    shares = [starts[worker::workers] for worker in range(workers)]
    if workers < 2:
        return [work(share) for share in shares]
    with ThreadPoolExecutor(workers) as pool:
        return list(pool.map(work, shares))


def _scale_and_bias(
    groups: np.ndarray, halves: np.ndarray, bits: int
) -> tuple[np.ndarray, np.ndarray]:
    low = _folded(np.minimum, groups, halves)
    high = np.maximum(_folded(np.maximum, groups, halves), np.float32(0))
    steps = np.float32(2**bits - 1)
    scale = np.maximum((high - low) / steps, _SMALLEST_SCALE)
    below = np.abs(low) > np.abs(high)
    edge = np.where(below, low, high)
    scale = np.where(below, scale, -scale)
    ratio = edge / scale
    count = np.trunc(ratio + np.copysign(_ALMOST_HALF, ratio))
    at_zero = count == 0
    fitted = edge / np.where(at_zero, np.float32(1), count)
    return np.where(at_zero, scale, fitted), np.where(at_zero, np.float32(0), edge)


def _folded(choose: np.ufunc, groups: np.ndarray, halves: np.ndarray) -> np.ndarray:
    """Reduce the last axis by halves, which is faster than row by row."""
    width = groups.shape[1] // 2
    half = halves[: len(groups)]
    choose(groups[:, :width], groups[:, width:], out=half)
    while width > 1:
        width //= 2
        choose(half[:, :width], half[:, width : 2 * width], out=half[:, :width])
    return half[:, 0].copy()


def _pack(
    groups: np.ndarray,
    scale: np.ndarray,
    bias: np.ndarray,
    bits: int,
    whole: np.ndarray,
    codes: np.ndarray,
) -> None:
    """Write the codes of a chunk; overwrites ``groups`` and ``whole``."""
    groups -= bias[:, None]
    groups /= scale[:, None]
    groups += _ALMOST_HALF
    np.clip(groups, 0, 2**bits - 1, out=groups)
    if bits == 8:
        np.copyto(codes, groups, casting="unsafe")
        return
    whole = whole[: len(groups)]
    np.copyto(whole, groups, casting="unsafe")
    pairs = whole.view("<u2")
    # The low byte holds the first code and the next.
    np.copyto(codes, pairs | (pairs >> 4), casting="unsafe")


def _as_stored(values: np.ndarray, dtype: str) -> Tensor:
    if dtype == "BF16":
        return to_bfloat16(values)
    return Tensor(dtype, values.astype(np.float16 if dtype == "F16" else np.float32))
