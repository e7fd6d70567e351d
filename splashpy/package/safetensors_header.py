# SPDX-License-Identifier: Apache-2.0
"""The header of a safetensors file, checked against the size of the file.

Layout: 8 bytes little-endian header length N, N bytes of JSON, then the data section.
The header maps each tensor to dtype, shape and its byte range in the data section;
the ranges must follow each other without gap or overlap and fill the section exactly.
Only the header is read, so a file of any size is checked in milliseconds.

Source of the format: the README of huggingface/safetensors 0.8.
"""

from __future__ import annotations

import json
import math
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from splashpy.errors import IntegrityError

_LENGTH_BYTES = 8
_LONGEST_HEADER = 100_000_000  # the limit the safetensors library itself sets
_MOST_NUMBERS = 2**60 - 1  # bytes are counted in 64 bits, at most 8 a number
_MOST_AXES = 32  # numpy takes 64, and no weight has more than a handful

_ITEM_BYTES = {
    **dict.fromkeys(("F64", "I64", "U64", "C64"), 8),
    **dict.fromkeys(("F32", "I32", "U32"), 4),
    **dict.fromkeys(("F16", "BF16", "I16", "U16"), 2),
    **dict.fromkeys(("I8", "U8", "BOOL", "F8_E4M3", "F8_E5M2", "F8_E8M0"), 1),
}


@dataclass(frozen=True, slots=True)
class TensorEntry:
    """One tensor: its dtype, shape, and byte range in the data section."""

    dtype: str
    shape: tuple[int, ...]
    begin: int
    end: int


def read_header(path: Path) -> dict[str, TensorEntry]:
    """The tensors of a file whose header and size agree.

    Raises:
        IntegrityError: the file is missing, cut short, too long, or its header is
            damaged; names the file and the sizes.
    """
    try:
        with path.open("rb") as file:
            size = path.stat().st_size
            length = _header_length(path, file.read(_LENGTH_BYTES), size)
            text = file.read(length)
    except OSError as error:
        reason = error.strerror or str(error)
        raise IntegrityError(f"{path}: cannot be read: {reason}") from None
    entries = _entries(path, text)
    _check_ranges(path, entries, size, _LENGTH_BYTES + length)
    return entries


def _header_length(path: Path, prefix: bytes, size: int) -> int:
    if len(prefix) < _LENGTH_BYTES:
        raise IntegrityError(
            f"{path}: too short for a safetensors file",
            why=f"at least {_LENGTH_BYTES} bytes expected, {size} found",
        )
    (length,) = struct.unpack("<Q", prefix)
    if length > _LONGEST_HEADER or length > size - _LENGTH_BYTES:
        raise IntegrityError(
            f"{path}: damaged header or cut short",
            why=f"a header of {length} bytes is announced, the file has {size} bytes",
        )
    return length


def _entries(path: Path, text: bytes) -> dict[str, TensorEntry]:
    try:
        data = json.loads(text, object_pairs_hook=_unique)
        data.pop("__metadata__", None)
        return {name: _entry(item) for name, item in data.items()}
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise IntegrityError(f"{path}: damaged header", why=_shortened(error)) from None


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    data = dict(pairs)
    if len(data) != len(pairs):
        raise ValueError("a name occurs twice")
    return data


def _entry(item: Any) -> TensorEntry:
    begin, end = item["data_offsets"]
    shape, dtype = item["shape"], item["dtype"]
    numbers = [begin, end, *shape]
    if not isinstance(dtype, str) or any(type(n) is not int or n < 0 for n in numbers):
        raise ValueError("dtype, shape and data_offsets must be a name and sizes")
    if begin > end:
        raise ValueError(f"data_offsets [{begin}, {end}] run backwards")
    if len(shape) > _MOST_AXES:
        raise ValueError(f"a shape of {len(shape)} axes")
    item_bytes = _ITEM_BYTES.get(dtype)
    if item_bytes is not None and end - begin != item_bytes * _count(shape):
        raise ValueError(f"{end - begin} bytes for {dtype} of shape {shape}")
    return TensorEntry(dtype, tuple(shape), begin, end)


def _count(shape: list[int]) -> int:
    """Numbers in a tensor.

    Raises:
        ValueError: so many that no array can have the shape, even an empty one.
    """
    if math.prod(length for length in shape if length) > _MOST_NUMBERS:
        raise ValueError(f"no array has the shape {shape}")
    return math.prod(shape)


def _check_ranges(
    path: Path, entries: dict[str, TensorEntry], size: int, data_start: int
) -> None:
    position = 0
    for entry in sorted(entries.values(), key=lambda entry: (entry.begin, entry.end)):
        if entry.begin != position:
            kind = "overlap" if entry.begin < position else "leave a gap"
            raise IntegrityError(
                f"{path}: damaged header",
                why=f"tensors {kind} at byte {min(entry.begin, position)} of the data",
            )
        position = entry.end
    if data_start + position != size:
        state = "cut short" if size < data_start + position else "longer than it says"
        raise IntegrityError(
            f"{path}: {state}",
            why=f"expected {data_start + position} bytes, found {size}",
        )


def _shortened(error: Exception) -> str:
    text = str(error) or type(error).__name__
    return text if len(text) <= 200 else f"{text[:197]}..."
