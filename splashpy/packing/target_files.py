# SPDX-License-Identifier: Apache-2.0
"""A target as mlx-lm wants it: arrays, config.json and tokenizer files, on disk.

Every source of a target is turned into ``TargetParts``; one function writes them, so
all packages look alike and equal parts give equal bytes.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np

from splashpy.package.progress import (
    Cancelled,
    CancelledError,
    Progress,
    never,
    silent,
)
from splashpy.protocol import LoadProgress

_DTYPES = {
    mx.float32: "F32",
    mx.float16: "F16",
    mx.bfloat16: "BF16",
    mx.uint32: "U32",
    mx.uint8: "U8",
}


@dataclass(frozen=True, slots=True)
class TargetParts:
    """Everything ``target/`` and ``tokenizer/`` of a package hold.

    Attributes:
        weights: tensor name, as mlx-lm calls it, to array.
        config: config.json.
        tokenizer: file name to content.
        eos_token_ids: tokens that end an answer.
        special: other named token ids, such as ``bos``.
    """

    weights: Mapping[str, mx.array]
    config: dict[str, Any]
    tokenizer: Mapping[str, bytes]
    eos_token_ids: tuple[int, ...]
    special: Mapping[str, int]


def write_target(
    parts: TargetParts,
    directory: Path,
    progress: Progress = silent,
    cancelled: Cancelled = never,
) -> None:
    """Write ``target/`` and ``tokenizer/`` below an existing directory.

    Reports and stops as ``write_safetensors``.
    """
    target, tokenizer = directory / "target", directory / "tokenizer"
    target.mkdir()
    tokenizer.mkdir()
    (target / "config.json").write_bytes(json_bytes(parts.config))
    weights = target / "model.safetensors"
    write_safetensors(parts.weights, weights, progress, cancelled)
    for name, content in sorted(parts.tokenizer.items()):
        (tokenizer / name).write_bytes(content)


def json_bytes(data: Any) -> bytes:
    """JSON for people: UTF-8, two spaces, keys as given, newline at the end."""
    return json.dumps(data, ensure_ascii=False, indent=2).encode() + b"\n"


def write_safetensors(
    weights: Mapping[str, mx.array],
    path: Path,
    progress: Progress = silent,
    cancelled: Cancelled = never,
) -> None:
    """Write arrays so that equal arrays give equal bytes.

    Tensors follow each other by item size (largest first, which aligns them) and
    name; ``mx.save_safetensors`` leaves them in the order of a hash table.

    Args:
        weights: tensor name to array.
        path: the file.
        progress: phase ``prepare``, in tensors.
        cancelled: polled before each tensor.

    Raises:
        CancelledError: ``cancelled`` said yes; the file is incomplete.
    """
    names = sorted(weights, key=lambda name: (-weights[name].itemsize, name))
    with path.open("wb") as file:
        file.write(_header(weights, names))
        for done, name in enumerate(names):
            if cancelled():
                raise CancelledError
            file.write(_raw(weights[name]))
            progress(
                LoadProgress(
                    phase="prepare",
                    done=done + 1,
                    total=len(names),
                    unit="tensors",
                    item=name,
                )
            )


def _header(weights: Mapping[str, mx.array], names: list[str]) -> bytes:
    header: dict[str, Any] = {"__metadata__": {"format": "mlx"}}
    position = 0
    for name in names:
        array = weights[name]
        header[name] = {
            "dtype": _DTYPES[array.dtype],
            "shape": array.shape,
            "data_offsets": [position, position + array.nbytes],
        }
        position += array.nbytes
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text


def _raw(array: mx.array) -> bytes:
    if array.dtype == mx.bfloat16:  # numpy has no bfloat16; the bits are what counts
        array = array.view(mx.uint16)
    return np.ascontiguousarray(np.array(array)).tobytes()
