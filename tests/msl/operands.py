# SPDX-License-Identifier: Apache-2.0
"""Arrays as bytes, the way a kernel sees them, and back.

bfloat16 has no numpy type, so its arrays cross as their 16-bit patterns.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass

import mlx.core as mx
import numpy as np


@dataclass(frozen=True, slots=True)
class Spread:
    """An MLX array as it lies in memory when it is a view of a larger one.

    Attributes:
        dtype: its element type.
        array: its elements, or their bits, with strides of the larger array.
    """

    dtype: mx.Dtype
    array: np.ndarray


Array = mx.array | np.ndarray | Spread | bool | int | float

_NUMPY = {
    mx.bool_: np.bool_,
    mx.uint8: np.uint8,
    mx.uint16: np.uint16,
    mx.uint32: np.uint32,
    mx.uint64: np.uint64,
    mx.int8: np.int8,
    mx.int16: np.int16,
    mx.int32: np.int32,
    mx.int64: np.int64,
    mx.float16: np.float16,
    mx.bfloat16: np.uint16,
    mx.float32: np.float32,
    mx.complex64: np.complex64,
}
_MLX = {np.dtype(n): m for m, n in _NUMPY.items() if m != mx.bfloat16}


@dataclass(frozen=True, slots=True)
class Operand:
    """One input in memory.

    Attributes:
        dtype: element type.
        shape: extents.
        strides: in elements.
        data: every byte from the first element to the last.
        known: 1 for a byte of an element, 0 for a byte in a gap between elements.
    """

    dtype: mx.Dtype
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    data: np.ndarray
    known: np.ndarray


def operand(value: Array, *, row_contiguous: bool) -> Operand:
    """Lay an input out in memory.

    Args:
        value: a numpy array may have any strides that are not negative; an MLX array
            is laid out row by row.
        row_contiguous: copy what is not laid out row by row, as MLX does by default.
    """
    dtype, array = _as_numpy(value)
    if row_contiguous or 0 in array.shape:
        array = np.ascontiguousarray(array).reshape(array.shape)
    strides = tuple(s // array.itemsize for s in array.strides)
    last = sum((n - 1) * s for n, s in zip(array.shape, array.strides, strict=True))
    size = last + array.itemsize if array.size else 0
    data = np.frombuffer(ctypes.string_at(array.ctypes.data, size), np.uint8)
    return Operand(dtype, array.shape, strides, data, _known(array, size))


def _as_numpy(value: Array) -> tuple[mx.Dtype, np.ndarray]:
    if isinstance(value, bool | int | float):
        value = mx.array(value)
    if isinstance(value, Spread):
        return value.dtype, value.array
    if isinstance(value, mx.array):
        bits = value.view(mx.uint16) if value.dtype == mx.bfloat16 else value
        return value.dtype, np.array(bits)
    return _MLX[value.dtype], value


def spread(value: mx.array, rows: int = 3) -> Spread:
    """Lay an array out as the first rows of one with ``rows`` more.

    Rows are the last axis but one, as in a buffer of keys that has room to grow.
    """
    dtype, array = _as_numpy(value)
    shape = (*array.shape[:-2], array.shape[-2] + rows, array.shape[-1])
    wide = np.zeros(shape, array.dtype)
    wide[..., : array.shape[-2], :] = array
    return Spread(dtype, wide[..., : array.shape[-2], :])


def _known(array: np.ndarray, size: int) -> np.ndarray:
    known = np.zeros(size, np.uint8)
    offsets = np.zeros((), np.int64)
    for n, stride in zip(array.shape, array.strides, strict=True):
        offsets = offsets[..., None] + np.arange(n) * stride
    for byte in range(array.itemsize):
        known[offsets.ravel() + byte] = 1
    return known


def empty_output(
    shape: Sequence[int], dtype: mx.Dtype, init_value: float | None
) -> tuple[np.ndarray, np.ndarray]:
    """Bytes of an output before the launch, and which of them hold a value.

    Without ``init_value`` the bytes are poison: a number no test would expect.
    """
    if init_value is None:
        size = int(np.prod(shape)) * dtype.size
        return np.full(size, 0xCD, np.uint8), np.zeros(size, np.uint8)
    filled = operand(mx.full(tuple(shape), init_value, dtype), row_contiguous=True)
    return filled.data.copy(), filled.known


def as_mlx(data: np.ndarray, shape: Sequence[int], dtype: mx.Dtype) -> mx.array:
    """An output's bytes as an MLX array."""
    array = mx.array(data.view(_NUMPY[dtype]).reshape(tuple(shape)))
    return array.view(mx.bfloat16) if dtype == mx.bfloat16 else array
