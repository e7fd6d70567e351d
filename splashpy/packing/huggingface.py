# SPDX-License-Identifier: Apache-2.0
"""A repository with unpacked weights becomes a packed target."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import mlx.nn as nn
from mlx.utils import tree_flatten
from mlx_lm.utils import load_model

from splashpy.errors import ModelKindError
from splashpy.package.fields import read_json
from splashpy.package.integrity import check_shards, refuse_code
from splashpy.package.model_directory import token_ids
from splashpy.packing.recipe import HubSource
from splashpy.packing.target_files import TargetParts

_TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "chat_template.jinja",
    "generation_config.json",
)


def read_repository(directory: Path, source: HubSource) -> TargetParts:
    """Load a checkpoint with mlx-lm and quantize it as the recipe says.

    Linear layers get ``source.bits``, the token embedding (and a head tied to it)
    ``source.embedding_bits``, all in groups of ``source.group_size``. Norms stay.

    Args:
        directory: config.json, model*.safetensors and the tokenizer files.
        source: the recipe's wishes.

    Raises:
        ModelKindError: mlx-lm does not know the architecture, or the weights are
            packed already.
        IntegrityError, RemoteCodeError: as for any model directory.
    """
    config = read_json(directory / "config.json")
    refuse_code(config, str(directory / "config.json"))
    check_shards(directory)
    if "quantization" in config or "quantization_config" in config:
        raise ModelKindError(f"{directory}: the weights are packed already")
    try:
        model, _ = load_model(directory, lazy=True)
    except (ValueError, TypeError, KeyError) as error:
        raise ModelKindError(
            f"{directory}: mlx-lm does not load this model", why=str(error)
        ) from None
    config["quantization"] = _quantize(model, source)
    eos = _eos_token_ids(directory, config)
    return TargetParts(
        weights=dict(tree_flatten(model.parameters())),
        config=config,
        tokenizer={
            name: (directory / name).read_bytes()
            for name in _TOKENIZER_FILES
            if (directory / name).is_file()
        },
        eos_token_ids=eos,
        special={
            name: config[f"{name}_token_id"]
            for name in ("bos", "pad")
            if type(config.get(f"{name}_token_id")) is int
        },
    )


def _quantize(model: nn.Module, source: HubSource) -> dict[str, Any]:
    """Quantize in place; returns the ``quantization`` object of config.json."""
    overrides: dict[str, Any] = {}

    def choose(path: str, module: nn.Module) -> bool | dict[str, int]:
        if not hasattr(module, "to_quantized"):
            return False
        if isinstance(module, nn.Embedding) and source.embedding_bits != source.bits:
            overrides[path] = {
                "group_size": source.group_size,
                "bits": source.embedding_bits,
            }
            return overrides[path]
        return True

    nn.quantize(model, source.group_size, source.bits, class_predicate=choose)
    return {
        "group_size": source.group_size,
        "bits": source.bits,
        "mode": "affine",
        **overrides,
    }


def _eos_token_ids(directory: Path, config: dict[str, Any]) -> tuple[int, ...]:
    generation = directory / "generation_config.json"
    other = read_json(generation) if generation.is_file() else {}
    ids = token_ids(config.get("eos_token_id")) | token_ids(other.get("eos_token_id"))
    return tuple(sorted(ids))
