# SPDX-License-Identifier: Apache-2.0
"""Tensors of files and arrays of MLX, without a change of value."""

from __future__ import annotations

import mlx.core as mx
import numpy as np

from splashpy.package.weights.tensor import Tensor

_DTYPES = {
    mx.float32: "F32",
    mx.float16: "F16",
    mx.bfloat16: "BF16",
    mx.uint32: "U32",
    mx.uint8: "U8",
}


def entry_of(array: mx.array) -> tuple[str, tuple[int, ...]]:
    """Type and shape, without evaluating the array."""
    return _DTYPES[array.dtype], array.shape


def from_mlx(array: mx.array) -> Tensor:
    """The evaluated numbers, in the array's own memory."""
    dtype = _DTYPES[array.dtype]
    if dtype == "BF16":  # numpy has no bfloat16; the bits are what counts
        array = array.view(mx.uint16)
    return Tensor(dtype, np.asarray(memoryview(array)))  # type: ignore[arg-type]


def to_mlx(tensor: Tensor) -> mx.array:
    """An array with the same bits."""
    array = mx.array(tensor.data)
    return array.view(mx.bfloat16) if tensor.dtype == "BF16" else array
