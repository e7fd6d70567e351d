# SPDX-License-Identifier: Apache-2.0
"""Write a drafter in the published layout: config.json and model.safetensors.

Which tokens are frequent enough to be drafted is written beside them, in a file of its
own, so that engines that know nothing of it load the rest.

A drafter that was loaded and not changed is written as the very bytes it was read
from. Otherwise every tensor has the dtype of the origin, bfloat16 for a new drafter;
matrices are packed where that was asked for, or where the origin's were.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path

import mlx.core as mx

from splashpy.errors import UsageError
from splashpy.models.dflash2_config import Quantization
from splashpy.package import frequent_tokens as frequent
from splashpy.training.files import save_atomic, write_atomic
from splashpy.training.init import Student

_BITS = (4, 8, 16)
_UNPACKED = 16
_GROUP_SIZE = 64


def export(
    student: Student,
    directory: Path,
    *,
    bits: int | None = None,
    frequent_tokens: Sequence[int] | None = None,
) -> None:
    """Write a drafter that ``load_drafter`` and other engines read.

    Args:
        student: what to write.
        directory: made when it does not exist; files there are replaced.
        bits: of the matrices: 4 or 8 packs them, 16 does not; None keeps the origin's
            choice.
        frequent_tokens: ascending ids of the only tokens to draft; None keeps the
            origin's list, if it had one.

    Raises:
        UsageError: ``bits`` is not one of the choices.
        ValueError: ``frequent_tokens`` is no list ``load_drafter`` would take.
    """
    if bits not in (*_BITS, None):
        raise UsageError(
            f"a drafter cannot have {bits}-bit weights", why="choices: 4, 8 and 16"
        )
    directory.mkdir(parents=True, exist_ok=True)
    if student.origin is not None and bits is None and not student.changed:
        _copy_files(student.origin, directory)
    else:
        _write_files(student, directory, bits)
        (directory / frequent.FILE_NAME).unlink(missing_ok=True)
        if frequent_tokens is None:
            frequent_tokens = student.network.config.frequent_tokens
    if frequent_tokens is not None:
        _write_list(student, directory, frequent_tokens)


def _write_files(student: Student, directory: Path, bits: int | None) -> None:
    packing = _packing(student, bits)
    config = dict(student.config)
    if bits is not None:
        config.pop("quantization", None)
        if packing is not None:
            group, width = packing.group_size, packing.bits
            config["quantization"] = {"group_size": group, "bits": width}
    weights = directory / "model.safetensors"
    save_atomic(weights, _tensors(student, packing))
    for old in _drafter_files(directory):
        if old not in (weights, directory / frequent.FILE_NAME):
            old.unlink()  # shards of an earlier result would be read beside it
    write_atomic(directory / "config.json", json.dumps(config, indent=2) + "\n")


def _write_list(student: Student, directory: Path, token_ids: Sequence[int]) -> None:
    config = student.network.config
    content = frequent.frequent_tokens_text(
        token_ids,
        vocab_size=config.vocab_size,
        at_least=max(config.selector_top_k, 1),
    )
    write_atomic(directory / frequent.FILE_NAME, content)


def _copy_files(origin: Path, directory: Path) -> None:
    if origin.resolve() == directory.resolve():
        return
    files = {file.name: file for file in _drafter_files(origin)}
    for old in _drafter_files(directory):
        if old.name not in files:  # a stale index would name the wrong shards
            old.unlink()
    for file in (*files.values(), origin / "config.json"):
        unfinished = directory / f".{file.name}.unfinished"
        shutil.copyfile(file, unfinished)
        unfinished.replace(directory / file.name)


def _drafter_files(directory: Path) -> list[Path]:
    names = ("model*.safetensors*", frequent.FILE_NAME)
    return [file for name in names for file in directory.glob(name)]


def _packing(student: Student, bits: int | None) -> Quantization | None:
    if bits is None:
        return student.network.config.quantization
    if bits == _UNPACKED:
        return None
    return Quantization(group_size=_GROUP_SIZE, bits=bits)


def _tensors(student: Student, packing: Quantization | None) -> dict[str, mx.array]:
    tensors: dict[str, mx.array] = {}
    for name, array in student.weights.items():
        path, _, leaf = name.rpartition(".")
        array = array.astype(student.dtype)
        settings = packing.of(path) if packing and leaf == "weight" else None
        matrix = array.ndim == 2
        if settings and matrix and not array.shape[1] % settings.group_size:
            packed = mx.quantize(
                array,
                group_size=settings.group_size,
                bits=settings.bits,
                mode=settings.mode,
            )
            # Some number formats have no biases.
            parts = zip(("weight", "scales", "biases"), packed, strict=False)
            tensors |= {f"{path}.{part}": value for part, value in parts}
        else:
            tensors[name] = array
    return tensors
