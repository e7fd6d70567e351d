# SPDX-License-Identifier: Apache-2.0
"""Files that exist whole or not at all."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import mlx.core as mx

from splashpy.errors import InputFileError


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
    _replace(
        path,
        lambda place: mx.save_safetensors(
            str(place), dict(arrays), metadata={"format": "mlx"}
        ),
    )


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
    write(unfinished)
    unfinished.replace(path)
