# SPDX-License-Identifier: Apache-2.0
"""One record: a safetensors file that can tell whether it is whole.

The format itself checks no payload: a flipped byte would load as another number. So
the metadata carry a checksum of the whole file, the header included, in which the
checksum itself counts as zeros. What a record says about itself must also be what the
reader looked for; anything else is :class:`BadRecord`, and the record is worth nothing.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import xxhash

FORMAT = "splashpy-kv"
VERSION = "1"
SUFFIX = ".spkv"
FILE_MODE = 0o600

_LENGTH_BYTES = 8
_LONGEST_HEADER = 1 << 20
_ALGORITHM = "xxh3:"
_NO_SUM = _ALGORITHM + "0" * 16

_DTYPES = {
    "F32": np.dtype("<f4"),
    "F16": np.dtype("<u2"),  # numbers nobody computes with here
    "BF16": np.dtype("<u2"),
    "U32": np.dtype("<u4"),
    "I32": np.dtype("<i4"),
    "U8": np.dtype("u1"),
}


class BadRecord(Exception):  # noqa: N818 - never shown; a reason to miss
    """A record that cannot be used; the message says why."""


@dataclass(frozen=True, slots=True)
class HostArray:
    """Numbers outside of mlx.

    Attributes:
        dtype: as safetensors names it.
        data: contiguous; 16-bit floats as unsigned numbers of the same bits.
    """

    dtype: str
    data: np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class Record:
    """What a file holds.

    Attributes:
        about: what it says about itself.
        arrays: by name.
    """

    about: dict[str, str]
    arrays: dict[str, HostArray]

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays."""
        return sum(array.data.nbytes for array in self.arrays.values())


def write(path: Path, record: Record, *, temporary: Path) -> int:
    """Write a record under another name, then give it its own.

    Nobody ever sees half a record under its own name.

    Returns:
        Bytes of the file.

    Raises:
        OSError: it cannot be written; nothing is left behind.
    """
    header = _header(record)
    try:
        with open(temporary, "wb", opener=_private) as file:
            file.write(header)
            for array in record.arrays.values():
                file.write(array.data.data.cast("B"))
        temporary.replace(path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
    return len(header) + record.nbytes


def read(path: Path, expected: Mapping[str, str]) -> Record:
    """Read a record and prove it.

    Args:
        path: of the file.
        expected: what it must say about itself.

    Raises:
        BadRecord: it is missing, cut short, damaged, or another one.
    """
    try:
        data = np.fromfile(path, dtype=np.uint8)
    except OSError as error:
        raise BadRecord(error.strerror or str(error)) from None
    head, about, tensors = _parsed(data.data)
    _check_sum(head, about, data[len(head) :])
    for name, value in expected.items():
        if about.get(name) != value:
            raise BadRecord(f"{name} is {about.get(name)!r}, not {value!r}")
    return Record(about, _arrays(tensors, data[len(head) :]))


def read_about(path: Path) -> dict[str, str]:
    """What a record says about itself, not proved.

    Raises:
        BadRecord: it has no header that can be read.
    """
    try:
        with path.open("rb") as file:
            start = file.read(_LENGTH_BYTES)
            length = int.from_bytes(start, "little")
            text = file.read(min(length, _LONGEST_HEADER))
    except OSError as error:
        raise BadRecord(error.strerror or str(error)) from None
    return _parsed(memoryview(start + text))[1]


def _private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_EXCL | os.O_NOFOLLOW, FILE_MODE)


def _header(record: Record) -> bytes:
    tensors: dict[str, Any] = {}
    at = 0
    for name, array in record.arrays.items():
        end = at + array.data.nbytes
        shape = list(array.data.shape)
        tensors[name] = {
            "dtype": array.dtype,
            "shape": shape,
            "data_offsets": [at, end],
        }
        at = end
    about = {"fmt": FORMAT, "ver": VERSION, **record.about, "sum": _NO_SUM}
    text = json.dumps({"__metadata__": about, **tensors}, separators=(",", ":"))
    encoded = text.encode()
    encoded += b" " * (-len(encoded) % 8)
    header = len(encoded).to_bytes(_LENGTH_BYTES, "little") + encoded
    digest = xxhash.xxh3_64(header)
    for array in record.arrays.values():
        digest.update(array.data.data.cast("B"))
    real = _ALGORITHM + digest.hexdigest()
    return header.replace(_NO_SUM.encode(), real.encode())


def _parsed(
    data: memoryview,
) -> tuple[bytes, dict[str, str], dict[str, dict[str, Any]]]:
    """The header's bytes, the metadata and the tensors' entries."""
    length = int.from_bytes(data[:_LENGTH_BYTES], "little")
    if not 0 < length <= min(_LONGEST_HEADER, len(data) - _LENGTH_BYTES):
        raise BadRecord(f"{len(data)} bytes cannot hold a header of {length}")
    head = bytes(data[: _LENGTH_BYTES + length])
    try:
        tensors = json.loads(head[_LENGTH_BYTES:])
        about = tensors.pop("__metadata__")
    except (ValueError, KeyError, AttributeError, RecursionError) as error:
        raise BadRecord(f"the header is damaged: {error}") from None
    if not isinstance(about, dict) or about.get("fmt") != FORMAT:
        raise BadRecord("it is no record of this cache")
    if about.get("ver") != VERSION:
        raise BadRecord(f"version {about.get('ver')} of the format")
    return head, about, tensors


def _check_sum(head: bytes, about: Mapping[str, str], payload: np.ndarray) -> None:
    stated = str(about.get("sum", ""))
    if len(stated) != len(_NO_SUM):
        raise BadRecord("it has no checksum")
    said = stated.encode(errors="replace")
    digest = xxhash.xxh3_64(head.replace(said, _NO_SUM.encode()))
    digest.update(payload.data)
    if stated != _ALGORITHM + digest.hexdigest():
        raise BadRecord("the checksum differs: it is damaged or cut short")


def _arrays(
    tensors: Mapping[str, Mapping[str, Any]], payload: np.ndarray
) -> dict[str, HostArray]:
    """Views of the payload; the checksum has proved the entries."""
    arrays = {}
    for name, entry in tensors.items():
        begin, end = entry["data_offsets"]
        dtype = _DTYPES[entry["dtype"]]
        shape = tuple(entry["shape"])
        if end - begin != math.prod(shape) * dtype.itemsize or end > len(payload):
            raise BadRecord(f"{name} does not fit its place")
        data = payload[begin:end].view(dtype).reshape(shape)
        arrays[name] = HostArray(entry["dtype"], data)
    return arrays
