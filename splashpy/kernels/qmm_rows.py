# SPDX-License-Identifier: Apache-2.0
"""Products of a few rows with a quantized matrix.

A verify pass multiplies two to sixteen rows with every matrix of the target. The kernel
reads each packed weight once for all rows. What it computes for a row does not depend
on how many others there are.

Shapes: M rows, N outputs, K inputs, G inputs per group.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import mlx.core as mx
import mlx.nn as nn

from splashpy.kernels import gate, metal

FEWEST_ROWS, MOST_ROWS = 2, 16
_BITS = (4, 8)
_GROUPS = (32, 64, 128)
_FEWEST_OUTPUTS = 8
_WIDE_OUTPUTS = 65_536  # a vocabulary: larger tiles still fill every core
_DEEP_INPUTS = 16_384
_SPLITS = 8  # simdgroups of a threadgroup, which share the inputs of one tile

_LAYOUT = """
    const uint tile = threadgroup_position_in_grid.x;
    const uint thread_index = thread_position_in_threadgroup.x;
"""
_TAIL = """OUTPUTS, INPUTS, uint(rows), thread_index, threads_per_threadgroup.x,
        thread_index_in_simdgroup, simdgroup_index_in_threadgroup,
        simdgroups_per_threadgroup);
"""
_ROWS = metal.Kernel(
    name="qmm_rows",
    files=("matrix_tile", "qmm_rows"),
    inputs=("x", "words", "scales", "biases", "rows"),
    outputs=("out",),
    body=_LAYOUT
    + """
    threadgroup float shared[SPLITS * 64 * COLUMNS * TILES];
    qmm_rows_at<T, BITS, GROUP, COLUMNS, TILES>(
        x, words, scales, biases, out, shared, tile, """
    + _TAIL,
)
_GATED = metal.Kernel(
    name="gated_rows",
    files=_ROWS.files,
    inputs=(
        *("x", "gate", "gate_scales", "gate_biases"),
        *("up", "up_scales", "up_biases", "rows"),
    ),
    outputs=("out",),
    body=_LAYOUT
    + """
    threadgroup float shared[2 * SPLITS * 64 * COLUMNS * TILES];
    gated_rows_at<T, BITS, GROUP, COLUMNS, TILES>(
        x, gate, gate_scales, gate_biases, up, up_scales, up_biases, out, shared,
        tile, """
    + _TAIL,
)


@dataclass(frozen=True, slots=True)
class Packed:
    """A quantized matrix: w = scale * q + bias.

    Attributes:
        words: [N, K * bits / 32] uint32.
        scales: [N, K / G].
        biases: [N, K / G].
        group_size: G.
        bits: of q.
    """

    words: mx.array
    scales: mx.array
    biases: mx.array
    group_size: int
    bits: int

    @classmethod
    def of(cls, layer: Any) -> Packed:
        """The matrix of an affine ``nn.QuantizedLinear``."""
        return cls(
            layer.weight, layer.scales, layer.biases, layer.group_size, layer.bits
        )

    @property
    def inputs(self) -> int:
        """K."""
        return self.words.shape[1] * 32 // self.bits

    @property
    def outputs(self) -> int:
        """N."""
        return self.words.shape[0]

    def product(self, x: mx.array) -> mx.array:
        """[..., K] to [..., N] by MLX's own operation."""
        return mx.quantized_matmul(
            x,
            self.words,
            self.scales,
            self.biases,
            transpose=True,
            group_size=self.group_size,
            bits=self.bits,
        )


def qmm_rows(x: mx.array, matrix: Packed) -> mx.array:
    """Rows times the transpose of a quantized matrix.

    Args:
        x: [..., K], any float dtype.
        matrix: [N, K].

    Returns:
        [..., N] in x's dtype, summed in float32.

    Raises:
        ValueError: the rows do not have K entries.
    """
    _check(x, matrix)
    if _eligible(x, matrix) and gate.allows("qmm_rows", *shape_of(x, matrix)):
        return _rows_metal(x, matrix)
    return matrix.product(x)


def gated_rows(x: mx.array, opening: Packed, value: Packed) -> mx.array:
    """silu(x * opening) * (x * value), the inside of a gated MLP.

    Args:
        x: [..., K], any float dtype.
        opening: [N, K].
        value: [N, K], packed as ``opening``.

    Returns:
        [..., N] in x's dtype.

    Raises:
        ValueError: the shapes do not agree.
    """
    _check(x, opening)
    _check(x, value)
    alike = (opening.bits, opening.group_size, opening.words.shape) == (
        value.bits,
        value.group_size,
        value.words.shape,
    )
    fits = alike and _eligible(x, opening) and _eligible(x, value)
    if fits and gate.allows("gated_rows", *shape_of(x, opening)):
        return _gated_metal(x, opening, value)
    return nn.silu(qmm_rows(x, opening)) * qmm_rows(x, value)


def shape_of(x: mx.array, matrix: Packed) -> gate.Shape:
    """What the verdict on a product is filed under."""
    kind = (matrix.bits, matrix.group_size, str(x.dtype))
    return math.prod(x.shape[:-1]), matrix.outputs, matrix.inputs, *kind


def _check(x: mx.array, matrix: Packed) -> None:
    if x.shape[-1] != matrix.inputs:
        raise ValueError(f"rows of {x.shape[-1]}, a matrix of {matrix.inputs} inputs")


def _eligible(x: mx.array, matrix: Packed) -> bool:
    rows = math.prod(x.shape[:-1])
    return (
        FEWEST_ROWS <= rows <= MOST_ROWS
        and matrix.bits in _BITS
        and matrix.group_size in _GROUPS
        and matrix.inputs % matrix.group_size == 0
        and matrix.outputs >= _FEWEST_OUTPUTS
        and matrix.scales.dtype == matrix.biases.dtype
    )


def _rows_metal(x: mx.array, matrix: Packed) -> mx.array:
    columns, splits = _tiling(matrix, _ROWS.name)
    return _launch(
        _ROWS, x, matrix, columns, splits, [matrix.words, matrix.scales, matrix.biases]
    )


def _gated_metal(x: mx.array, opening: Packed, value: Packed) -> mx.array:
    columns, splits = _tiling(opening, _GATED.name)
    parts = [part for m in (opening, value) for part in (m.words, m.scales, m.biases)]
    return _launch(_GATED, x, opening, columns, splits, parts)


def _tiling(matrix: Packed, kernel: str) -> tuple[int, int]:
    """Tiles of eight outputs per threadgroup, and simdgroups that share its inputs.

    Both follow from the matrix and the device alone, never from the rows.
    """
    splits = metal.whole_simdgroups(_SPLITS * metal.SIMD_WIDTH, kernel)
    splits //= metal.SIMD_WIDTH
    if matrix.outputs >= _WIDE_OUTPUTS:
        return 4, min(splits, 4)
    return 2 if matrix.inputs >= _DEEP_INPUTS else 1, splits


def _launch(
    kernel: metal.Kernel,
    x: mx.array,
    matrix: Packed,
    columns: int,
    splits: int,
    parts: list[mx.array],
) -> mx.array:
    rows = math.prod(x.shape[:-1])
    threads = splits * metal.SIMD_WIDTH
    return metal.build(kernel)(
        inputs=[x, *parts, rows],
        template=[
            ("T", x.dtype),
            ("BITS", matrix.bits),
            ("GROUP", matrix.group_size),
            ("COLUMNS", columns),
            ("TILES", -(-rows // 8)),
            ("SPLITS", splits),
            ("OUTPUTS", matrix.outputs),
            ("INPUTS", matrix.inputs),
        ],
        grid=(-(-matrix.outputs // (8 * columns)) * threads, 1, 1),
        threadgroup=(threads, 1, 1),
        output_shapes=[(*x.shape[:-1], matrix.outputs)],
        output_dtypes=[x.dtype],
    )[0]
