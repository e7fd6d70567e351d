# SPDX-License-Identifier: Apache-2.0
"""A GGUF file taken apart: metadata, and where each tensor lies.

Every count and length is compared with the size of the file before it is believed, so
a damaged or hostile file costs no more than itself. Tensors stay in the file until
their values are asked for.

Layout (little-endian): ``GGUF``, version, number of tensors, number of metadata pairs;
the pairs; for each tensor its name, dimensions (fastest first), type and offset; then
the data, aligned. Source: the GGUF specification of ggml-org/ggml.
"""

from __future__ import annotations

import math
import mmap
import re
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gguf
import numpy as np

from splashpy.errors import IntegrityError, ModelKindError
from splashpy.packing.gguf_metadata import Metadata

_MAGIC = b"GGUF"
_VERSIONS = (2, 3)
_ALIGNMENT = 32
_MOST_DIMENSIONS = 4
_STRING, _ARRAY = 8, 9
_NUMBERS = {
    0: "<u1",
    1: "<i1",
    2: "<u2",
    3: "<i2",
    4: "<u4",
    5: "<i4",
    6: "<f4",
    7: "?",
    10: "<u8",
    11: "<i8",
    12: "<f8",
}
_LAYER = re.compile(r"blk\.([0-9]{1,9})\.")
_SMALLEST_STRING = 8  # its length alone


@dataclass(frozen=True, slots=True)
class GgufTensor:
    """One tensor.

    Attributes:
        kind: name of its type, such as ``Q4_1``.
        shape: slowest axis first.
        data: its bytes, mapped.
    """

    kind: str
    shape: tuple[int, ...]
    data: np.ndarray


@dataclass(frozen=True, slots=True)
class GgufFile:
    """A whole file.

    Attributes:
        metadata: its key-value pairs.
        tensors: by name.
    """

    metadata: Metadata
    tensors: dict[str, GgufTensor]

    @classmethod
    def open(cls, path: Path) -> GgufFile:
        """Read everything but the data of tensors.

        Raises:
            IntegrityError: not GGUF, damaged or cut short.
        """
        try:
            with path.open("rb") as file:
                content = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except (OSError, ValueError) as error:
            raise _damaged(path, str(error)) from None
        cursor = _Cursor(content)
        try:
            return _read(path, cursor)
        except (ValueError, OverflowError, MemoryError, struct.error) as error:
            raise _damaged(path, f"{error} at byte {cursor.position}") from None


def check_layers(file: GgufFile, count: int) -> None:
    """Compare the stated number of layers with those that have tensors.

    Raises:
        ModelKindError: they differ.
    """
    matches = map(_LAYER.match, file.tensors)
    found = {int(match[1]) for match in matches if match}
    if len(found) != count or max(found, default=-1) >= count:
        numbers = f"{min(found)} to {max(found)}" if found else "none"
        raise ModelKindError(
            f"{file.metadata.file}: block_count is {count}, and {len(found)} layers "
            "have tensors",
            why=f"their numbers: {numbers}",
        )


class _Cursor:
    """Reads a mapped file from the front."""

    def __init__(self, content: mmap.mmap):
        self.content = content
        self.position = 0

    def take(self, count: int) -> bytes:
        """The next bytes."""
        self.require(count)
        start = self.position
        self.position += count
        return self.content[start : self.position]

    def require(self, count: int) -> None:
        """Refuse to go beyond the end."""
        if count > len(self.content) - self.position:
            raise ValueError(f"{count} bytes announced beyond the end")

    def number(self, form: str) -> Any:
        """One number of a struct format."""
        return struct.unpack(form, self.take(struct.calcsize(form)))[0]

    def text(self) -> str:
        """A string with its length before it."""
        return self.take(self.number("<Q")).decode()

    def value(self, kind: int) -> Any:
        """A metadata value of a type; an array may not hold arrays."""
        if kind == _STRING:
            return self.text()
        if kind == _ARRAY:
            return self._array()
        if kind not in _NUMBERS:
            raise ValueError(f"metadata of type {kind}")
        return self._numbers(kind, 1)[0]

    def _array(self) -> list[Any]:
        kind, count = self.number("<I"), self.number("<Q")
        if kind == _STRING:
            self.require(count * _SMALLEST_STRING)
            return [self.text() for _ in range(count)]
        if kind not in _NUMBERS:
            raise ValueError(f"an array of type {kind}")
        return self._numbers(kind, count)

    def _numbers(self, kind: int, count: int) -> list[Any]:
        dtype = np.dtype(_NUMBERS[kind])
        return np.frombuffer(self.take(count * dtype.itemsize), dtype).tolist()


def _read(path: Path, cursor: _Cursor) -> GgufFile:
    if cursor.take(4) != _MAGIC:
        raise ValueError("it does not begin with GGUF")
    version = cursor.number("<I")
    if version not in _VERSIONS:
        raise ValueError(f"version {version}")
    num_tensors, num_pairs = cursor.number("<Q"), cursor.number("<Q")
    raw: dict[str, Any] = {}
    for _ in range(num_pairs):
        key = cursor.text()
        raw[key] = cursor.value(cursor.number("<I"))
    described = [_description(cursor) for _ in range(num_tensors)]
    alignment = raw.get("general.alignment", _ALIGNMENT)
    if type(alignment) is not int or alignment < 1:
        raise ValueError(f"alignment {alignment!r}")
    start = -(-cursor.position // alignment) * alignment
    tensors = {
        name: _tensor(path, cursor, start + offset, kind, shape)
        for name, shape, kind, offset in described
    }
    if len(tensors) != num_tensors:
        raise ValueError("two tensors of one name")
    _check_apart(
        (offset, tensors[name].data.nbytes, name) for name, _, _, offset in described
    )
    return GgufFile(Metadata(raw, path.name), tensors)


def _check_apart(places: Iterable[tuple[int, int, str]]) -> None:
    """Refuse tensors that share bytes: what is written could exceed what is there."""
    end = 0
    for offset, size, name in sorted(places):
        if offset < end and size:
            raise ValueError(f"{name} overlaps the tensor before it")
        end = max(end, offset + size)


def _description(cursor: _Cursor) -> tuple[str, tuple[int, ...], int, int]:
    name, dimensions = cursor.text(), cursor.number("<I")
    if dimensions > _MOST_DIMENSIONS:
        raise ValueError(f"{name} has {dimensions} dimensions")
    shape = tuple(cursor.number("<Q") for _ in range(dimensions))
    return name, tuple(reversed(shape)), cursor.number("<I"), cursor.number("<Q")


def _tensor(
    path: Path, cursor: _Cursor, start: int, kind: int, shape: tuple[int, ...]
) -> GgufTensor:
    form = gguf.GGMLQuantizationType(kind)
    block, block_bytes = gguf.GGML_QUANT_SIZES[form]
    if 0 in shape:
        raise ValueError("a tensor without a value")
    count = math.prod(shape)
    columns = shape[-1] if shape else 1
    if columns % block:
        raise ValueError(f"rows of {columns} values in blocks of {block}")
    size = count // block * block_bytes
    if start + size > len(cursor.content):
        raise ValueError(f"tensor data up to byte {start + size} in a file cut short")
    data = np.memmap(path, np.uint8, "r", start, (size,)) if size else np.empty(0, "u1")
    return GgufTensor(form.name, shape, data)


def _damaged(path: Path, why: str) -> IntegrityError:
    return IntegrityError(f"{path}: cannot be read as GGUF", why=why)
