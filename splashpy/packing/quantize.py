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
                scale, bias = _scale_and_bias(chunk, bits)
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

    New ones each time would cost more than the arithmetic. A chunk is turned over,
    [2, group size / 2, groups]: first the even weights of every group, then the odd
    ones. Each step of numpy then runs over all groups at once, not over one.
    """

    def __init__(self, groups: int, group_size: int):
        shape = (2, group_size // 2, groups)
        self._values = np.empty(shape, np.float32)
        self._pairs = np.empty(shape[1:], np.uint32)
        self._whole = np.empty(shape, np.uint8)
        self.whole = self._whole

    def load(self, dtype: str, groups: np.ndarray) -> np.ndarray:
        """The groups, [N, group size], as float32 and turned over."""
        count = len(groups)
        chunk = self._values[..., :count]
        self.whole = self._whole[..., :count]
        if dtype == "BF16":  # the upper half of a float32
            pairs, bits = self._pairs[:, :count], chunk.view(np.uint32)
            np.copyto(pairs, groups.view("<u4").T)
            np.left_shift(pairs, 16, out=bits[0])
            np.bitwise_and(pairs, 0xFFFF0000, out=bits[1])
        else:
            chunk[...] = groups.reshape(count, -1, 2).T
        return chunk


def _shared(work: Callable[[range], bool], starts: range) -> list[bool]:
    """Share the starts among all processors, where there are several of either."""
    workers = min(len(starts), os.cpu_count() or 1)
    shares = [starts[worker::workers] for worker in range(workers)]
    if workers < 2:
        return [work(share) for share in shares]
    with ThreadPoolExecutor(workers) as pool:
        return list(pool.map(work, shares))


def _scale_and_bias(chunk: np.ndarray, bits: int) -> tuple[np.ndarray, np.ndarray]:
    low = chunk.min(axis=(0, 1))
    high = np.maximum(chunk.max(axis=(0, 1)), np.float32(0))
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


def _pack(
    chunk: np.ndarray,
    scale: np.ndarray,
    bias: np.ndarray,
    bits: int,
    whole: np.ndarray,
    codes: np.ndarray,
) -> None:
    """Write the codes of a chunk; overwrites ``chunk`` and ``whole``.

    No quotient is below zero: bias is the end of the group from which the scale points
    to the other; where it is not, all are within one half. The largest is 2^bits, one
    too many.
    """
    chunk -= bias
    chunk /= scale
    chunk += _ALMOST_HALF
    if bits == 8:
        np.minimum(chunk, 255, out=chunk)
        np.copyto(whole, chunk, casting="unsafe")
        codes[:, 0::2], codes[:, 1::2] = whole[0].T, whole[1].T
        return
    np.copyto(whole, chunk, casting="unsafe")
    np.minimum(whole, 15, out=whole)
    even, odd = whole
    np.left_shift(odd, 4, out=odd)
    np.bitwise_or(even, odd, out=even)
    np.copyto(codes, even.T)


def _as_stored(values: np.ndarray, dtype: str) -> Tensor:
    if dtype == "BF16":
        return to_bfloat16(values)
    return Tensor(dtype, values.astype(np.float16 if dtype == "F16" else np.float32))
