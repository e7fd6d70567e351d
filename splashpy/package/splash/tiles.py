# SPDX-License-Identifier: Apache-2.0
"""Packed matrices between MLX's row-major order and the tiles of a Splash file.

A tile is 256 rows of one group of 64 columns. The codes of one row in one group are
the same bytes in both orders (32 for 4 bits, 64 for 8), so a change of order moves
whole units and changes no value.

Shapes: N rows, a multiple of 256; G groups of 64 columns; W words of codes per row.
A section is the codes [N/256, G, 256] in units, then scales and biases alike.
"""

from __future__ import annotations

import numpy as np

from splashpy.package.splash.formats import GROUP_SIZE, TILE_ROWS

_UNIT_BYTES = {4: 32, 8: 64}

Planes = tuple[np.ndarray, np.ndarray, np.ndarray]
"""Codes [N, W] of uint32, scales [N, G] and biases [N, G] of bfloat16 as uint16."""


def untile(section: np.ndarray, rows: int, columns: int, bits: int) -> Planes:
    """One matrix of a file in MLX's order.

    Args:
        section: its bytes, uint8.
        rows: N.
        columns: 64 * G.
        bits: 4 or 8.
    """
    groups = columns // GROUP_SIZE
    codes_end = rows * columns * bits // 8
    scales_end = codes_end + 2 * rows * groups
    codes = section[:codes_end].view(_unit(bits))
    weight = _to_rows(codes, rows, groups).view(np.uint32)
    return (
        weight.reshape(rows, columns * bits // 32),
        _to_rows(section[codes_end:scales_end].view(np.uint16), rows, groups),
        _to_rows(section[scales_end:].view(np.uint16), rows, groups),
    )


def tile(planes: Planes, columns: int, bits: int) -> Planes:
    """The three planes of a file, to be written one after the other.

    Args:
        planes: a matrix in MLX's order.
        columns: 64 * G.
        bits: 4 or 8.
    """
    weight, scales, biases = planes
    rows, groups = weight.shape[0], columns // GROUP_SIZE
    units = np.ascontiguousarray(weight).view(_unit(bits)).reshape(rows, groups)
    return _to_tiles(units), _to_tiles(scales), _to_tiles(biases)


def _unit(bits: int) -> np.dtype:
    # One opaque item per row and group: numpy then moves 32 or 64 bytes at once.
    return np.dtype(f"V{_UNIT_BYTES[bits]}")


def _to_rows(plane: np.ndarray, rows: int, groups: int) -> np.ndarray:
    tiles = plane.reshape(rows // TILE_ROWS, groups, TILE_ROWS)
    return np.ascontiguousarray(tiles.transpose(0, 2, 1)).reshape(rows, groups)


def _to_tiles(plane: np.ndarray) -> np.ndarray:
    rows, groups = plane.shape
    tiles = plane.reshape(rows // TILE_ROWS, TILE_ROWS, groups)
    return np.ascontiguousarray(tiles.transpose(0, 2, 1))
