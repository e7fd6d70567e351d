# SPDX-License-Identifier: Apache-2.0
"""Write small GGUF files, blocks packed by numpy, independent of what reads them.

Layout from the GGUF specification (version 3) and the block formats of ggml: Q8_0 is
a float16 scale and 32 int8; Q4_0 a scale and 16 bytes; Q4_1 a scale, a minimum and 16
bytes. A byte holds element i in its low and element i + 16 in its high half.
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import numpy as np

ALIGNMENT = 32
TYPES = {"F32": 0, "F16": 1, "Q4_0": 2, "Q4_1": 3, "Q5_0": 6, "Q8_0": 8}

Packed = tuple[str, tuple[int, ...], bytes]
"""Type, shape and bytes of a tensor."""


def pack(kind: str, values: np.ndarray) -> tuple[Packed, np.ndarray]:
    """Bytes of a tensor, and the values they stand for as float32."""
    if kind in ("F32", "F16"):
        stored = values.astype(np.float32 if kind == "F32" else np.float16)
        return (kind, values.shape, stored.tobytes()), stored.astype(np.float32)
    blocks = values.reshape(-1, 32).astype(np.float32)
    content, meant = _PACKERS[kind](blocks)
    return (kind, values.shape, content), meant.reshape(values.shape)


def _pack_q8_0(blocks: np.ndarray) -> tuple[bytes, np.ndarray]:
    scale = (np.abs(blocks).max(1, keepdims=True) / 127).astype(np.float16)
    codes = np.rint(blocks / scale.astype(np.float32)).astype(np.int8)
    rows = [s.tobytes() + c.tobytes() for s, c in zip(scale, codes, strict=True)]
    return b"".join(rows), scale.astype(np.float32) * codes


def _pack_q4_0(blocks: np.ndarray) -> tuple[bytes, np.ndarray]:
    furthest = np.take_along_axis(blocks, np.abs(blocks).argmax(1)[:, None], 1)
    scale = (furthest / -8).astype(np.float16)
    codes = np.clip(np.floor(blocks / scale.astype(np.float32) + 8.5), 0, 15)
    rows = [s.tobytes() + _halves(c) for s, c in zip(scale, codes, strict=True)]
    return b"".join(rows), scale.astype(np.float32) * (codes - 8)


def _pack_q4_1(blocks: np.ndarray) -> tuple[bytes, np.ndarray]:
    low = blocks.min(1, keepdims=True).astype(np.float16)
    scale = ((blocks.max(1, keepdims=True) - low) / 15).astype(np.float16)
    codes = np.clip(np.rint((blocks - low) / scale.astype(np.float32)), 0, 15)
    rows = [
        s.tobytes() + m.tobytes() + _halves(c)
        for s, m, c in zip(scale, low, codes, strict=True)
    ]
    return b"".join(rows), scale.astype(np.float32) * codes + low.astype(np.float32)


def _halves(codes: np.ndarray) -> bytes:
    whole = codes.astype(np.uint8)
    return (whole[:16] | (whole[16:] << 4)).tobytes()


_PACKERS = {"Q8_0": _pack_q8_0, "Q4_0": _pack_q4_0, "Q4_1": _pack_q4_1}


def write_gguf(
    path: Path, metadata: dict[str, Any], tensors: dict[str, Packed]
) -> None:
    """Write a file; metadata values are str, bool, int, float or lists of one kind."""
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(metadata))
    for key, value in metadata.items():
        head += _string(key) + _typed(value)
    position, data = 0, b""
    for name, (kind, shape, content) in tensors.items():
        dimensions = tuple(reversed(shape))
        head += _string(name) + struct.pack("<I", len(dimensions))
        head += struct.pack(f"<{len(dimensions)}Q", *dimensions)
        head += struct.pack("<IQ", TYPES[kind], position)
        padded = content + bytes(-len(content) % ALIGNMENT)
        data += padded
        position += len(padded)
    path.write_bytes(head + bytes(-len(head) % ALIGNMENT) + data)


def _string(text: str) -> bytes:
    content = text.encode()
    return struct.pack("<Q", len(content)) + content


def _typed(value: Any) -> bytes:
    if isinstance(value, list):
        kind, _ = _scalar(value[0])
        items = b"".join(_scalar(item)[1] for item in value)
        return struct.pack("<IIQ", 9, kind, len(value)) + items
    kind, content = _scalar(value)
    return struct.pack("<I", kind) + content


def _scalar(value: Any) -> tuple[int, bytes]:
    if isinstance(value, bool):
        return 7, struct.pack("<?", value)
    if isinstance(value, int):
        return 5, struct.pack("<i", value)
    if isinstance(value, float):
        return 6, struct.pack("<f", value)
    return 8, _string(value)
