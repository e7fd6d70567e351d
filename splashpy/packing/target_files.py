# SPDX-License-Identifier: Apache-2.0
"""A target as mlx-lm wants it: arrays, config.json and tokenizer files, on disk.

Every source of a target is turned into ``TargetParts``; one function writes them, so
all packages look alike and equal parts give equal bytes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mlx.core as mx

from splashpy.models.arrays import entry_of, from_mlx
from splashpy.package.progress import Cancelled, Progress, never, silent
from splashpy.package.weights import safetensors_file
from splashpy.protocol import LoadProgress


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
    entries = {name: entry_of(array) for name, array in weights.items()}
    written: list[str] = []

    def done(name: str) -> None:
        written.append(name)
        progress(
            LoadProgress(
                phase="prepare",
                done=len(written),
                total=len(entries),
                unit="tensors",
                item=name,
            )
        )

    safetensors_file.write_safetensors(
        path,
        entries,
        lambda name: from_mlx(weights[name]),
        done=done,
        cancelled=cancelled,
    )
