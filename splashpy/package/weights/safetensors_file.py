# SPDX-License-Identifier: Apache-2.0
"""safetensors files read without copying and written without holding them.

Reading maps a file into memory; a tensor costs memory where it is used. Writing needs
types and shapes beforehand, since the header comes first, and takes the tensors one by
one. Equal tensors give equal bytes: they follow each other by item size (largest
first, which aligns them) and name.
"""

from __future__ import annotations

import json
import math
import os
import struct
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from splashpy.errors import IntegrityError
from splashpy.package.integrity import check_shards
from splashpy.package.progress import Cancelled, CancelledError, never
from splashpy.package.safetensors_header import TensorEntry, read_header
from splashpy.package.weights.tensor import STORAGE, Tensor

Entry = tuple[str, tuple[int, ...]]
"""Type and shape of a tensor."""

_LENGTH_BYTES = 8
_PIECE_BYTES = 64 << 20  # written at once: a wish to stop waits for no more


@dataclass(frozen=True, slots=True)
class _Place:
    path: Path
    data_start: int
    entry: TensorEntry


class Checkpoint(Mapping[str, Tensor]):
    """All tensors of a directory's ``model*.safetensors``, by name."""

    def __init__(self, places: Mapping[str, _Place]):
        """Use :meth:`open`."""
        self._places = places

    @classmethod
    def open(cls, directory: Path) -> Checkpoint:
        """Check the files and find every tensor.

        Raises:
            IntegrityError: files are missing or damaged, or one name is in two.
            ModelKindError: there are none.
        """
        check_shards(directory)
        return cls.of_files(sorted(directory.glob("model*.safetensors")))

    @classmethod
    def of_files(cls, files: list[Path]) -> Checkpoint:
        """The tensors of these files; raises as ``open``."""
        places: dict[str, _Place] = {}
        for path in files:
            entries = read_header(path)
            with path.open("rb") as file:
                (length,) = struct.unpack("<Q", file.read(_LENGTH_BYTES))
            for name, entry in entries.items():
                if name in places:
                    raise IntegrityError(f"{path}: tensor {name} is in two files")
                if entry.dtype not in STORAGE:
                    raise IntegrityError(f"{path}: {name} has type {entry.dtype!r}")
                places[name] = _Place(path, _LENGTH_BYTES + length, entry)
        return cls(places)

    def __getitem__(self, name: str) -> Tensor:
        """A tensor, mapped."""
        place = self._places[name]
        entry, storage = place.entry, STORAGE[place.entry.dtype]
        if not math.prod(entry.shape):
            return Tensor(entry.dtype, np.zeros(entry.shape, storage))
        data = np.memmap(
            place.path,
            storage,
            "r",
            offset=place.data_start + entry.begin,
            shape=entry.shape,
        )
        return Tensor(entry.dtype, data)

    def __iter__(self) -> Iterator[str]:
        """Names, in the order of the files."""
        return iter(self._places)

    def __len__(self) -> int:
        """How many tensors there are."""
        return len(self._places)

    def entry(self, name: str) -> Entry:
        """Type and shape, without touching the data."""
        found = self._places[name].entry
        return found.dtype, found.shape


def written_order(entries: Mapping[str, Entry]) -> list[str]:
    """Names in the order a file has them."""
    return sorted(entries, key=lambda name: (-STORAGE[entries[name][0]].itemsize, name))


def entry_bytes(entry: Entry) -> int:
    """Bytes of the data of a tensor."""
    dtype, shape = entry
    return STORAGE[dtype].itemsize * math.prod(shape)


def write_safetensors(
    path: Path,
    entries: Mapping[str, Entry],
    tensor: Callable[[str], Tensor],
    *,
    done: Callable[[str], None] = lambda _: None,
    cancelled: Cancelled = never,
) -> None:
    """Write a file and see that it is on the disk.

    Args:
        path: the file.
        entries: type and shape of every tensor.
        tensor: gives each, in the order of ``written_order``, while the one before it
            is written.
        done: called with each name once it is on its way.
        cancelled: polled before each tensor and every 64 MiB.

    Raises:
        CancelledError: ``cancelled`` said yes; the file is incomplete.
        ValueError: a tensor differs from its entry.
    """
    names = written_order(entries)
    with path.open("wb") as file, ThreadPoolExecutor(1) as pool:
        file.write(_header(entries, names))
        writing: Future[None] | None = None
        for name in names:
            if cancelled():
                raise CancelledError
            given = tensor(name)
            if (given.dtype, given.shape) != entries[name]:
                raise ValueError(f"{name} is {given.dtype} {given.shape}")
            if writing:
                writing.result()
            writing = pool.submit(_write, file, given, cancelled)
            done(name)
        if writing:
            writing.result()
        file.flush()
        os.fsync(file.fileno())


def _write(file: BinaryIO, tensor: Tensor, cancelled: Cancelled) -> None:
    flat: Any = np.ascontiguousarray(tensor.data).reshape(-1).view(np.uint8)
    for start in range(0, max(len(flat), 1), _PIECE_BYTES):
        if cancelled():
            raise CancelledError
        file.write(memoryview(flat[start : start + _PIECE_BYTES]))


def _header(entries: Mapping[str, Entry], names: list[str]) -> bytes:
    header: dict[str, Any] = {"__metadata__": {"format": "mlx"}}
    position = 0
    for name in names:
        dtype, shape = entries[name]
        end = position + entry_bytes(entries[name])
        header[name] = {
            "dtype": dtype,
            "shape": list(shape),
            "data_offsets": [position, end],
        }
        position = end
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text
