# SPDX-License-Identifier: Apache-2.0
"""A tensor as its file has it: raw numbers of a named type.

numpy has no bfloat16 and no float8, so the array holds unsigned integers of the same
size where a type is not numpy's; nothing here computes with them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

STORAGE = {
    "F64": np.dtype("<f8"),
    "F32": np.dtype("<f4"),
    "F16": np.dtype("<f2"),
    "BF16": np.dtype("<u2"),
    "F8_E4M3": np.dtype("u1"),
    "F8_E5M2": np.dtype("u1"),
    "F8_E8M0": np.dtype("u1"),
    "I64": np.dtype("<i8"),
    "I32": np.dtype("<i4"),
    "I16": np.dtype("<i2"),
    "I8": np.dtype("i1"),
    "U64": np.dtype("<u8"),
    "U32": np.dtype("<u4"),
    "U16": np.dtype("<u2"),
    "U8": np.dtype("u1"),
    "BOOL": np.dtype("?"),
}
"""safetensors' names of types, and what numpy stores them as."""


@dataclass(frozen=True, slots=True)
class Tensor:
    """One tensor.

    Attributes:
        dtype: safetensors' name of its type.
        data: the numbers, as ``STORAGE`` says.
    """

    dtype: str
    data: np.ndarray

    @property
    def shape(self) -> tuple[int, ...]:
        """Length of each axis."""
        return self.data.shape

    @property
    def num_bytes(self) -> int:
        """Bytes of the numbers."""
        return self.data.nbytes


def to_float32(tensor: Tensor) -> np.ndarray:
    """The values of a BF16, F16 or F32 tensor, exactly.

    Raises:
        ValueError: of another type.
    """
    if tensor.dtype == "BF16":
        wide = tensor.data.astype(np.uint32)
        wide <<= 16
        return wide.view(np.float32)
    if tensor.dtype in ("F32", "F16"):
        return tensor.data.astype(np.float32)
    raise ValueError(f"{tensor.dtype} is no floating-point type read here")


def to_bfloat16(values: np.ndarray) -> Tensor:
    """Finite float32 values rounded to bfloat16, ties to even."""
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    rounded = (bits + np.uint32(0x7FFF) + ((bits >> 16) & np.uint32(1))) >> 16
    return Tensor("BF16", rounded.astype(np.uint16))
