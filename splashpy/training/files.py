# SPDX-License-Identifier: Apache-2.0
"""Files that exist whole or not at all."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import mlx.core as mx

from splashpy.errors import InputFileError

_PROBE_BYTES = 1 << 20


def write_atomic(path: Path, text: str) -> None:
    """Replace a text file."""

    def write(place: Path) -> None:
        with place.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())

    _replace(path, write)


def save_atomic(path: Path, arrays: Mapping[str, mx.array]) -> None:
    """Replace a safetensors file."""
    _replace(path, lambda place: save_arrays(place, arrays))


def save_arrays(path: Path, arrays: Mapping[str, mx.array]) -> None:
    """Write a safetensors file and see that it is on the disk.

    Raises:
        OSError: it cannot be written.
    """
    try:
        mx.save_safetensors(str(path), dict(arrays), metadata={"format": "mlx"})
    except RuntimeError as error:
        raise _reason(path, error) from None
    with path.open("rb") as file:
        os.fsync(file.fileno())


def _reason(path: Path, error: RuntimeError) -> OSError:
    """Why mlx could not write, which it does not say: writing more fails alike."""
    try:
        with path.open("ab") as file:
            file.write(bytes(_PROBE_BYTES))
            file.flush()
            os.fsync(file.fileno())
    except OSError as found:
        found.filename = str(path)
        return found
    return OSError(errno.EIO, str(error), str(path))


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object of this room's own making.

    Raises:
        InputFileError: it cannot be read.
    """
    try:
        value = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise InputFileError(f"{path} cannot be read", why=str(error)) from None
    if not isinstance(value, dict):
        raise InputFileError(f"{path} does not hold a JSON object")
    return value


def _replace(path: Path, write: Callable[[Path], None]) -> None:
    # mlx appends the suffix to a name without it, so the suffix stays at the end.
    unfinished = path.with_name(f".{path.stem}.unfinished{path.suffix}")
    try:
        write(unfinished)
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)
