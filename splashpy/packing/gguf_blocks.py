# SPDX-License-Identifier: Apache-2.0
"""Blocks of a GGUF tensor become affine codes or plain numbers.

Q4_0, Q4_1 and Q8_0 are affine codes in groups of 32 already: a scale, a minimum (fixed
for two of them) and codes in another order, so no value changes. Every other type is
expanded by the gguf package, to float16, which holds what such blocks can say of
weights of usual size.

Source of the block formats: ggml-quants of ggml-org/ggml.
"""

from __future__ import annotations

import gguf
import numpy as np

from splashpy.errors import ModelKindError
from splashpy.package.weights.tensor import Tensor
from splashpy.packing.gguf_file import GgufTensor
from splashpy.packing.quantize import PackedTensor
from splashpy.packing.quantize_on_demand import Packing

AFFINE = {"Q4_0": Packing(4, 32), "Q4_1": Packing(4, 32), "Q8_0": Packing(8, 32)}
"""Types whose codes are kept."""

_PLAIN = {"F32": np.dtype("<f4"), "F16": np.dtype("<f2"), "BF16": np.dtype("<u2")}
_HALF = np.dtype("<f2")
_PIECE_BLOCKS = 1 << 12  # expanded at once: a few MiB of float32


def affine(tensor: GgufTensor, name: str) -> PackedTensor:
    """A tensor of a type in ``AFFINE``, as ``mx.quantize`` would have given it.

    Raises:
        ModelKindError: a scale or a bias is no finite number.
    """
    packing = AFFINE[tensor.kind]
    numbers = 2 if tensor.kind == "Q4_1" else 1
    width = 2 * numbers + packing.group_size * packing.bits // 8
    blocks = tensor.data.reshape(-1, width)
    scales = np.ascontiguousarray(blocks[:, :2]).view(_HALF)[:, 0]
    codes = blocks[:, 2 * numbers :]
    if tensor.kind == "Q4_1":
        biases = np.ascontiguousarray(blocks[:, 2:4]).view(_HALF)[:, 0]
    else:
        with np.errstate(over="ignore"):
            biases = scales * _HALF.type(-(2 ** (packing.bits - 1)))
    if not (np.isfinite(scales).all() and np.isfinite(biases).all()):
        raise ModelKindError(f"{name}: a scale is not a finite number, or too large")
    words = codes ^ np.uint8(128) if packing.bits == 8 else _in_order(codes)
    *lead, columns = tensor.shape
    groups = (*lead, columns // packing.group_size)
    weight = np.ascontiguousarray(words).view("<u4")
    return PackedTensor(
        Tensor("U32", weight.reshape(*lead, columns * packing.bits // 32)),
        Tensor("F16", scales.reshape(groups)),
        Tensor("F16", biases.reshape(groups)),
    )


def plain(tensor: GgufTensor, name: str) -> Tensor:
    """A tensor as numbers: as stored where it is, else expanded to float16.

    Raises:
        ModelKindError: the gguf package does not know the type.
    """
    storage = _PLAIN.get(tensor.kind)
    if storage is not None:
        return Tensor(tensor.kind, tensor.data.view(storage).reshape(tensor.shape))
    form = gguf.GGMLQuantizationType[tensor.kind]
    block_bytes = gguf.GGML_QUANT_SIZES[form][1]
    blocks = tensor.data.reshape(-1, block_bytes)
    half = np.empty(tensor.shape, np.float16)
    pieces = half.reshape(len(blocks), -1)
    try:
        for start in range(0, len(blocks), _PIECE_BLOCKS):
            part = slice(start, start + _PIECE_BLOCKS)
            # What is or becomes no number is refused when it is packed.
            with np.errstate(over="ignore", invalid="ignore"):
                pieces[part] = gguf.dequantize(blocks[part], form)
    except NotImplementedError:
        raise ModelKindError(
            f"tensor {name} is {tensor.kind}, which cannot be expanded"
        ) from None
    return Tensor("F16", half)


def plain_dtype(kind: str) -> str:
    """The type ``plain`` gives."""
    return kind if kind in _PLAIN else "F16"


def _in_order(codes: np.ndarray) -> np.ndarray:
    """From halves (byte i: elements i and i + 16) to pairs of neighbours."""
    values = np.empty((len(codes), 32), np.uint8)
    values[:, :16] = codes & 15
    values[:, 16:] = codes >> 4
    return values[:, ::2] | (values[:, 1::2] << 4)
