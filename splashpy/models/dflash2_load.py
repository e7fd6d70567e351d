# SPDX-License-Identifier: Apache-2.0
"""From a directory in the Hugging Face layout to a drafter network in memory.

Every tensor the configuration implies must be there with its shape, and no other. On a
GPU packed matrices stay packed and everything else becomes bfloat16; on a CPU every
weight becomes float32 once, since packed products and bfloat16 are slow there.
Activations have the dtype of the norms, so float16 never occurs.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx.nn as nn
from mlx.utils import tree_flatten

from splashpy.errors import IntegrityError, ModelKindError, UsageError
from splashpy.kernels import metal
from splashpy.models.dflash2 import DFlashNetwork
from splashpy.models.dflash2_config import DFlashConfig, Quantization, check_pair
from splashpy.models.dflash2_parse import parse_config
from splashpy.models.loading import Progress, to_float32
from splashpy.models.splash_load import (
    read_splash_draft,
    read_splash_draft_config,
)
from splashpy.models.target import TargetFacts
from splashpy.package.frequent_tokens import read_frequent_tokens
from splashpy.package.relative_path import leaves
from splashpy.package.splash.package import is_splash
from splashpy.units import format_bytes

UNPACKED_BITS = 16
_BITS = (4, 8, UNPACKED_BITS)
_GROUP_SIZE = 64  # as Splash and mlx-lm pack by default

_PREFIX = "model."  # some files put it before every name
_ALIASES = {
    "encoder.fc.weight": "fc.weight",
    "encoder.output_norm_enc.weight": "hidden_norm.weight",
    "candidate_selector.predecessor_codebook.weight": (
        "candidate_selector.predecessor_codebook"
    ),
    "candidate_selector.successor_codebook.weight": (
        "candidate_selector.successor_codebook"
    ),
}
_NAMES_SHOWN = 6


def load_drafter(
    directory: Path,
    target: TargetFacts,
    *,
    bits: int | None = None,
    dtype: mx.Dtype | None = None,
    progress: Progress | None = None,
) -> DFlashNetwork:
    """Read a drafter; must run on the thread that will use it.

    Args:
        directory: config.json and model.safetensors, or shards with their index;
            perhaps frequent_tokens.json.
        target: facts of the target it shall draft for; checked before any weight is
            read.
        bits: of the matrices: 4 or 8 packs them, 16 unpacks them, None keeps them.
            Norms, base kernels and codebooks are never packed, nor is a matrix whose
            rows are not a multiple of 64 long.
        dtype: of everything that is not packed; float32 unpacks the matrices too.
            None is bfloat16 on a GPU and float32 on a CPU.
        progress: called as weights arrive.

    Raises:
        UsageError: ``bits`` is not one of the choices.
        PairError: the drafter was not made for this target.
        ModelKindError: not a drafter, tensors are missing, unknown or misshapen, or
            frequent_tokens.json lists what cannot be drafted.
        IntegrityError: a file is missing, damaged or cut short.
    """
    if bits not in (*_BITS, None):
        raise UsageError(
            f"a drafter cannot have {bits}-bit weights", why="choices: 4, 8 and 16"
        )
    network = _unread(directory, target, bits, dtype)
    _evaluate(network, progress)
    return network


def drafter_sizes(
    directory: Path, target: TargetFacts, bits: int | None = None
) -> tuple[int, int]:
    """Bytes of a drafter and of each row of its context, without reading weights.

    Args:
        directory: as for :func:`load_drafter`.
        target: facts of the target.
        bits: as for :func:`load_drafter`.

    Raises:
        The errors of :func:`load_drafter`.
    """
    if is_splash(directory):  # whose tensors are arranged anew while they are read
        config = _read_config(directory)
        files = (directory / "draft").glob("*.bin")
        return sum(file.stat().st_size for file in files), _row_bytes(config)
    network = _unread(directory, target, bits, None)
    sizes = [array.nbytes for array in _parameters(network).values()]
    return sum(sizes), _row_bytes(network.config)


def _row_bytes(config: DFlashConfig) -> int:
    """Of keys and values in the layers that see the whole text."""
    width = 2 * config.num_kv_heads * config.head_dim
    itemsize = 2 if metal.use_metal() else 4
    return sum(window is None for window in config.windows) * width * itemsize


def _unread(
    directory: Path, target: TargetFacts, bits: int | None, dtype: mx.Dtype | None
) -> DFlashNetwork:
    """The network with every weight in its final shape, none of them read."""
    config = _read_config(directory)
    check_pair(config, target)
    tensors = _read_tensors(directory)
    network = DFlashNetwork(config)
    _pack_as_stored(network, tensors, directory)
    _check_tensors(network, tensors, directory)
    network.load_weights(list(tensors.items()), strict=False)
    stored_bits = config.quantization.bits if config.quantization else UNPACKED_BITS
    if bits not in (stored_bits, None):
        _set_bits(network, bits)
    if dtype is None:
        dtype = mx.bfloat16 if metal.use_metal() else mx.float32
    if dtype == mx.float32:
        to_float32(network)
    network.set_dtype(dtype)
    return network


def _read_config(directory: Path) -> DFlashConfig:
    if is_splash(directory):
        return parse_config(read_splash_draft_config(directory), str(directory))
    config = parse_config(_read_json(directory / "config.json"), str(directory))
    tokens = read_frequent_tokens(
        directory,
        vocab_size=config.vocab_size,
        at_least=max(config.selector_top_k, 1),
    )
    return replace(config, frequent_tokens=tokens)


def _read_json(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise IntegrityError(f"{path} is missing") from None
    except (OSError, ValueError, RecursionError) as error:
        raise IntegrityError(f"{path} cannot be read", why=str(error)) from None
    if not isinstance(value, dict):
        raise IntegrityError(f"{path} does not hold a JSON object")
    return value


def _read_tensors(directory: Path) -> dict[str, mx.array]:
    """Every tensor under its published name, not read from disk yet."""
    if is_splash(directory):
        return read_splash_draft(directory)
    tensors: dict[str, mx.array] = {}
    for path in _weight_files(directory):
        try:
            loaded = mx.load(str(path))
        except RuntimeError as error:
            raise IntegrityError(
                f"{path} is damaged or cut short",
                why=f"it has {format_bytes(path.stat().st_size)}; {error}",
                fix=["download the drafter again"],
            ) from None
        assert isinstance(loaded, dict)  # what mlx gives for a safetensors file
        for name, array in loaded.items():
            name = name.removeprefix(_PREFIX)
            tensors[_ALIASES.get(name, name)] = array
    return tensors


def _weight_files(directory: Path) -> list[Path]:
    index = directory / "model.safetensors.index.json"
    names = ["model.safetensors"]
    if index.exists():
        shards = _read_json(index).get("weight_map")
        if not isinstance(shards, dict) or not shards:
            raise IntegrityError(f"{index} has no weight_map")
        names = sorted({str(name) for name in shards.values()})
        if outside := next(filter(leaves, names), ""):
            raise IntegrityError(f"{index} names a file elsewhere", why=outside)
    missing = [name for name in names if not (directory / name).is_file()]
    if missing:
        raise IntegrityError(
            f"{directory}: incomplete download",
            why=f"missing: {_listed(missing)}",
            fix=["download the drafter again"],
        )
    return [directory / name for name in names]


def _pack_as_stored(
    network: DFlashNetwork, tensors: Mapping[str, mx.array], directory: Path
) -> None:
    """Give every matrix the layout it has in the file."""

    def packing(path: str, module: nn.Module) -> bool | dict[str, Any]:
        if not isinstance(module, nn.Linear) or f"{path}.scales" not in tensors:
            return False
        stored = network.config.quantization
        settings: Quantization | None = stored and stored.of(path)
        if settings is None:
            raise ModelKindError(
                f"{directory}: {path} is packed, config.json does not say how",
                why='the key "quantization" is missing or excludes it',
            )
        return {
            "group_size": settings.group_size,
            "bits": settings.bits,
            "mode": settings.mode,
        }

    try:
        nn.quantize(network, class_predicate=packing)
    except ValueError as error:
        raise ModelKindError(
            f"{directory}: the quantization of config.json does not fit", why=str(error)
        ) from None


def _check_tensors(
    network: DFlashNetwork, tensors: Mapping[str, mx.array], directory: Path
) -> None:
    expected = {name: array.shape for name, array in _parameters(network).items()}
    misshapen = [
        f"{name} is {list(tensors[name].shape)}, expected {list(shape)}"
        for name, shape in expected.items()
        if name in tensors and tensors[name].shape != shape
    ]
    faults = {
        "missing": sorted(expected.keys() - tensors.keys()),
        "unknown": sorted(tensors.keys() - expected.keys()),
        "wrong shape": misshapen,
    }
    if any(faults.values()):
        raise ModelKindError(
            f"{directory}: the tensors are not those config.json describes",
            why="; ".join(
                f"{kind}: {_listed(names)}" for kind, names in faults.items() if names
            ),
        )


def _set_bits(network: DFlashNetwork, bits: int) -> None:
    to_float32(network)
    if bits == UNPACKED_BITS:
        return
    nn.quantize(
        network,
        group_size=_GROUP_SIZE,
        bits=bits,
        class_predicate=lambda _, module: (
            isinstance(module, nn.Linear) and module.weight.shape[1] % _GROUP_SIZE == 0
        ),
    )


def _evaluate(network: DFlashNetwork, progress: Progress | None) -> None:
    """Tensor by tensor, so that peak memory stays near the final size."""
    arrays = _parameters(network).values()
    total = sum(array.nbytes for array in arrays)
    done = 0
    for array in arrays:
        mx.eval(array)
        done += array.nbytes
        if progress is not None:
            progress(done, total)


def _parameters(network: DFlashNetwork) -> dict[str, mx.array]:
    flat: Any = tree_flatten(network.parameters())
    return dict(flat)


def _listed(names: Iterable[str]) -> str:
    names = list(names)
    more = len(names) - _NAMES_SHOWN
    shown = ", ".join(names[:_NAMES_SHOWN])
    return f"{shown} and {more} more" if more > 0 else shown
