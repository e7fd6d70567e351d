# SPDX-License-Identifier: Apache-2.0
"""From a directory of weights to a target in memory.

mlx-lm builds the module and reads the weights lazily; they are evaluated here in
groups, so that progress can be shown and peak memory stays near the final size. On a
CPU every weight becomes float32 once: ``mx.quantized_matmul`` there costs the same per
row whatever the row count, so a block would gain nothing, and bfloat16 is slow.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx.nn as nn
from mlx.utils import tree_flatten, tree_map
from mlx_lm.utils import load_model

from splashpy.errors import ModelKindError
from splashpy.models.target import MlxLmTarget, TargetFacts, find_backbone

SUPPORTED = ("llama", "qwen3")
"""Architectures whose state can be rolled back exactly, by ``model_type``."""

_GROUP_BYTES = 1 << 30  # evaluated at once: progress steps and peak memory
_GROUPS_AT_LEAST = 8  # a small model still shows a moving bar

Progress = Callable[[int, int], None]
"""Called with (bytes done, bytes total)."""


def load_target(
    directory: Path, config: dict[str, Any], context_max: int, progress: Progress
) -> MlxLmTarget:
    """Read a target; must run on the thread that will use it.

    Args:
        directory: config.json and model*.safetensors in mlx-lm's layout, already
            checked for completeness.
        config: the parsed config.json.
        context_max: tokens of prompt plus answer the model was made for.
        progress: called as weights arrive.

    Raises:
        ModelKindError: the architecture is not supported or the weights do not fit
            the configuration.
    """
    model_type = config.get("model_type", "")
    if model_type not in SUPPORTED or config.get("sliding_window_pattern"):
        raise ModelKindError(
            f"{directory.name}: model_type {model_type!r} is not supported yet",
            why=f"supported architectures: {', '.join(SUPPORTED)}",
        )
    try:
        model, _ = load_model(directory, lazy=True)
    except (ValueError, KeyError, TypeError) as error:
        raise ModelKindError(
            f"{directory.name}: weights and config.json do not fit", why=str(error)
        ) from None
    if any(
        getattr(layer, "use_sliding", False) for layer in find_backbone(model).layers
    ):
        raise ModelKindError(
            f"{directory.name}: sliding-window layers are not supported yet"
        )
    if mx.default_device() == mx.cpu:
        to_float32(model)
    total = _evaluate_in_groups(model, progress)
    return MlxLmTarget(model, _facts(config, context_max, total, model))


def to_float32(model: nn.Module) -> None:
    """Replace quantized layers by float32 ones and cast every other weight."""
    plain = [
        (name, _dequantized(module))
        for name, module in model.named_modules()
        if isinstance(module, nn.QuantizedLinear | nn.QuantizedEmbedding)
    ]
    for name, module in plain:
        _replace(model, name, module)
    floats = (mx.float16, mx.bfloat16)
    model.update(
        tree_map(
            lambda a: a.astype(mx.float32) if a.dtype in floats else a,
            model.parameters(),
        )
    )


def _dequantized(layer: nn.QuantizedLinear | nn.QuantizedEmbedding) -> nn.Module:
    biases = layer.get("biases")
    weight = mx.dequantize(
        layer.weight,
        layer.scales.astype(mx.float32),
        None if biases is None else biases.astype(mx.float32),
        group_size=layer.group_size,
        bits=layer.bits,
        mode=layer.mode,
    ).astype(mx.float32)
    if isinstance(layer, nn.QuantizedEmbedding):
        module: nn.Module = nn.Embedding(1, 1)
        module.weight = weight
        return module
    module = nn.Linear(1, 1, bias="bias" in layer)
    module.weight = weight
    if "bias" in layer:
        module.bias = layer.bias
    return module


def _replace(model: Any, name: str, module: nn.Module) -> None:
    *parents, leaf = name.split(".")
    owner = model
    for part in parents:
        owner = owner[int(part)] if part.isdigit() else getattr(owner, part)
    setattr(owner, leaf, module)


def _evaluate_in_groups(model: nn.Module, progress: Progress) -> int:
    named: Any = tree_flatten(model.parameters())
    weights: list[mx.array] = [array for _, array in named]
    total = sum(array.nbytes for array in weights)
    limit = min(_GROUP_BYTES, total // _GROUPS_AT_LEAST + 1)
    done, group, group_bytes = 0, [], 0
    progress(0, total)
    for array in weights:
        group.append(array)
        group_bytes += array.nbytes
        if group_bytes >= limit:
            mx.eval(group)
            done += group_bytes
            progress(done, total)
            group, group_bytes = [], 0
    mx.eval(group)
    progress(total, total)
    return total


def _facts(
    config: dict[str, Any], context_max: int, weight_bytes: int, model: nn.Module
) -> TargetFacts:
    args: Any = model.args
    head_dim = getattr(args, "head_dim", None)
    head_dim = head_dim or args.hidden_size // args.num_attention_heads
    itemsize = 4 if mx.default_device() == mx.cpu else 2
    return TargetFacts(
        model_type=config["model_type"],
        vocab_size=args.vocab_size,
        hidden_size=args.hidden_size,
        num_layers=args.num_hidden_layers,
        context_max=context_max,
        kv_bytes_per_token=2
        * args.num_hidden_layers
        * args.num_key_value_heads
        * head_dim
        * itemsize,
        weight_bytes=weight_bytes,
    )
