# SPDX-License-Identifier: Apache-2.0
"""One file of a Splash package: tensors in, bytes out, and back.

A file is mapped into memory and handed out section by section, so that reading needs
no more memory than the largest section; its size is checked against its layout before
anything is read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from splashpy.errors import ModelKindError
from splashpy.package.splash import tiles
from splashpy.package.splash.header import check_image, header_bytes
from splashpy.package.splash.layout import (
    FileLayout,
    Packed,
    Plain,
    Section,
    aligned,
)
from splashpy.package.weights.tensor import STORAGE, Tensor

Tensors = Mapping[str, Tensor]


class Writable(Protocol):
    """Where a file is written to."""

    def write(self, content: bytes | memoryview, /) -> int:
        """Take the next bytes; returns how many they were."""
        ...


@dataclass(frozen=True, slots=True)
class Content:
    """One section, unpacked.

    Attributes:
        tensors: by name.
        padding_is_zero: whether what fills the section up to whole tiles is zero; a
            file where it is not cannot be written again byte for byte.
    """

    tensors: dict[str, Tensor]
    padding_is_zero: bool = True


def read_image(path: Path, layout: FileLayout) -> Iterator[Content]:
    """The sections of a file, in order.

    Raises:
        IntegrityError: missing, of another size, or with the header of another file.
    """
    check_image(path, layout)
    for offset, section in layout.placed():
        yield read_section(path, offset, section)


def read_section(path: Path, offset: int, section: Section) -> Content:
    """One section of a file that was checked."""
    content = np.memmap(path, np.uint8, "r", offset, (section.num_bytes,))
    return _decode(section, content)


def write_image(
    file: Writable,
    layout: FileLayout,
    tensor: Callable[[str], Tensor],
) -> None:
    """Write a file.

    Args:
        file: empty, open for writing.
        layout: what it shall hold.
        tensor: gives each tensor of the layout, once, in the order of the file.

    Raises:
        ModelKindError: a tensor has another type or shape than the format wants.
    """
    position = file.write(header_bytes(layout))
    for offset, section in layout.placed():
        file.write(bytes(offset - position))
        for piece in _encode(section, tensor):
            buffer: Any = piece
            file.write(memoryview(buffer).cast("B"))
        position = offset + section.num_bytes
    file.write(bytes(aligned(position) - position))


def _decode(section: Section, raw: np.ndarray) -> Content:
    if isinstance(section, Packed):
        return _decode_packed(section, raw)
    stored = raw.view(STORAGE[section.dtype])
    if section.stored is None:
        whole = stored.reshape(section.shape)
        return Content({section.tensor: Tensor(section.dtype, whole)})
    padded = stored.reshape(section.stored)
    live = tuple(slice(length) for length in section.shape)
    rest = np.count_nonzero(padded) == np.count_nonzero(padded[live])
    return Content({section.tensor: Tensor(section.dtype, padded[live])}, bool(rest))


def _decode_packed(section: Packed, raw: np.ndarray) -> Content:
    matrices = [
        tiles.untile(matrix, section.rows, section.columns, section.bits)
        for matrix in raw.reshape(-1, section.matrix_bytes)
    ]
    found: dict[str, Tensor] = {}
    clean = True
    for plane, (suffix, dtype) in enumerate(_PLANES):
        several = [matrix[plane] for matrix in matrices]
        whole = np.stack(several) if section.experts else several[0]
        clean &= not whole[..., section.live_rows :, :].any()
        start = 0
        for module, rows in section.parts:
            part = whole[..., start : start + rows, :]
            found[f"{module}.{suffix}"] = Tensor(dtype, part)
            start += rows
    return Content(found, bool(clean))


_PLANES = (("weight", "U32"), ("scales", "BF16"), ("biases", "BF16"))


def _encode(section: Section, tensor: Callable[[str], Tensor]) -> Iterator[np.ndarray]:
    given = {name: tensor(name) for name in section.tensors()}
    for name, (dtype, shape) in section.tensors().items():
        found = given[name]
        if (found.dtype, found.shape) != (dtype, shape):
            raise ModelKindError(
                f"{name} is {found.dtype} {list(found.shape)}",
                why=f"the format has {dtype} {list(shape)}",
            )
    if isinstance(section, Packed):
        yield from _encode_packed(section, given)
    else:
        yield _padded(given[section.tensor].data, section)


def _padded(values: np.ndarray, section: Plain) -> np.ndarray:
    if section.stored is None:
        return np.ascontiguousarray(values)
    whole = np.zeros(section.stored, values.dtype)
    whole[tuple(slice(length) for length in values.shape)] = values
    return whole


def _encode_packed(section: Packed, given: Tensors) -> Iterator[np.ndarray]:
    for expert in range(max(section.experts, 1)):
        planes = [_stacked(section, given, suffix, expert) for suffix, _ in _PLANES]
        tiled = (planes[0], planes[1], planes[2])
        yield from (
            plane.view(np.uint8)
            for plane in tiles.tile(tiled, section.columns, section.bits)
        )


def _stacked(section: Packed, given: Tensors, suffix: str, expert: int) -> np.ndarray:
    """One plane of all parts, with the rows of zeros that fill the last tile."""
    parts = [given[f"{module}.{suffix}"].data for module, _ in section.parts]
    if section.experts:
        parts = [part[expert] for part in parts]
    missing = section.rows - section.live_rows
    if len(parts) == 1 and not missing:
        return np.ascontiguousarray(parts[0])
    filler = np.zeros((missing, parts[0].shape[1]), parts[0].dtype)
    return np.concatenate([*parts, filler])
