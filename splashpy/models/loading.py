# SPDX-License-Identifier: Apache-2.0
"""From a directory of weights to a target in memory.

mlx-lm builds the module and reads the weights lazily; they are evaluated here in
groups, so that progress can be shown and peak memory stays near the final size. On a
CPU every weight becomes float32 once: ``mx.quantized_matmul`` there costs the same per
row whatever the row count, so a block would gain nothing, and bfloat16 is slow.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx.nn as nn
from mlx.utils import tree_flatten, tree_map
from mlx_lm.models.mla import MultiLinear, QuantizedMultiLinear
from mlx_lm.models.switch_layers import QuantizedSwitchLinear, SwitchLinear
from mlx_lm.utils import MODEL_REMAPPING, load_model

from splashpy.errors import ModelKindError
from splashpy.models.architecture import DRAFTABLE, find_backbone, find_text_model
from splashpy.models.examination import examine
from splashpy.models.rotary import rotary_keys, scale_rotary
from splashpy.models.splash_load import read_splash_target
from splashpy.models.target import MlxLmTarget, TargetFacts
from splashpy.package.splash.package import is_splash

_GROUP_BYTES = 1 << 30  # evaluated at once: progress steps and peak memory
_GROUPS_AT_LEAST = 8  # a small model still shows a moving bar

_QUANTIZED = (
    nn.QuantizedLinear,
    nn.QuantizedEmbedding,
    QuantizedSwitchLinear,
    QuantizedMultiLinear,
)

Progress = Callable[[int, int], None]
"""Called with (bytes done, bytes total)."""


def load_target(
    directory: Path,
    config: dict[str, Any],
    context_max: int,
    progress: Progress,
    before_reading: Callable[[MlxLmTarget], None] = lambda _: None,
) -> MlxLmTarget:
    """Read a target; must run on the thread that will use it.

    Args:
        directory: config.json and model*.safetensors in mlx-lm's layout, already
            checked for completeness.
        config: the parsed config.json.
        context_max: tokens of prompt plus answer the model was made for.
        progress: called as weights arrive.
        before_reading: called with a target all of whose shapes are known and none of
            whose weights are in memory; what it raises ends the loading.

    Raises:
        ModelKindError: the architecture is not supported or the weights do not fit
            the configuration.
    """
    model_type = str(config.get("model_type", ""))
    check_model_type(directory.name, model_type)
    try:
        model = _read(directory, config)
    except (ArithmeticError, AssertionError, KeyError, TypeError, ValueError) as error:
        raise ModelKindError(
            f"{directory.name}: weights and config.json do not fit", why=str(error)
        ) from None
    if mx.default_device() == mx.cpu:
        to_float32(model)
    weights: Any = tree_flatten(model.parameters())
    total = sum(array.nbytes for _, array in weights)
    target = _unexamined(model, model_type, context_max, total)
    before_reading(target)
    _evaluate_in_groups(model, progress)
    return _examined(target)


def _read(directory: Path, config: dict[str, Any]) -> nn.Module:
    if is_splash(directory):
        return read_splash_target(directory, config)
    added = rotary_keys(config)
    model = load_model(directory, lazy=True, model_config=added)[0]
    scale_rotary(model, {**config, **added})
    return model


def check_model_type(name: str, model_type: str) -> None:
    """Refuse an architecture that mlx-lm does not have.

    Args:
        name: what to call the model.
        model_type: as in its config.json.

    Raises:
        ModelKindError: no module of mlx-lm implements it.
    """
    module = MODEL_REMAPPING.get(model_type, model_type)
    if module.isidentifier() and find_spec(f"mlx_lm.models.{module}"):
        return
    raise ModelKindError(
        f"{name}: model_type {model_type!r} is not supported",
        why=f"mlx-lm {version('mlx-lm')} does not have it; drafters are known for "
        f"{', '.join(DRAFTABLE)}",
    )


def to_float32(model: nn.Module) -> None:
    """Replace quantized layers by float32 ones and cast every other weight."""
    plain = [
        (name, _dequantized(module))
        for name, module in model.named_modules()
        if isinstance(module, _QUANTIZED) and module.get("global_scale") is None
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


def _dequantized(layer: Any) -> nn.Module:
    biases = layer.get("biases")
    weight = mx.dequantize(
        layer.weight,
        _exact(layer.scales),
        None if biases is None else _exact(biases),
        group_size=layer.group_size,
        bits=layer.bits,
        mode=layer.mode,
        dtype=mx.float32,
    ).astype(mx.float32)
    if isinstance(layer, nn.QuantizedEmbedding):
        module: Any = nn.Embedding(1, 1)
    elif isinstance(layer, QuantizedSwitchLinear):
        module = SwitchLinear(1, 1, 1, bias="bias" in layer)
    elif isinstance(layer, QuantizedMultiLinear):
        module = MultiLinear(1, 1, 1)
    else:
        module = nn.Linear(1, 1, bias="bias" in layer)
    module.weight = weight
    if "bias" in layer:
        module.bias = layer.bias
    return module


def _exact(scales: mx.array) -> mx.array:
    """Floats in full width; scales that are packed numbers stay as they are."""
    floating = mx.issubdtype(scales.dtype, mx.floating)
    return scales.astype(mx.float32) if floating else scales


def _replace(model: Any, name: str, module: nn.Module) -> None:
    *parents, leaf = name.split(".")
    owner = model
    for part in parents:
        owner = owner[int(part)] if part.isdigit() else getattr(owner, part)
    setattr(owner, leaf, module)


def _evaluate_in_groups(model: nn.Module, progress: Progress) -> None:
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


def make_target(
    model: nn.Module, model_type: str, context_max: int, weight_bytes: int
) -> MlxLmTarget:
    """A target from a model in memory, compared with the model it stands for.

    Args:
        model: of one of mlx-lm's ``Model`` classes, its weights evaluated.
        model_type: architecture name, as in config.json.
        context_max: tokens of prompt plus answer.
        weight_bytes: bytes of the weights.

    Raises:
        ModelKindError: the model keeps a state that cannot be rolled back.
    """
    return _examined(_unexamined(model, model_type, context_max, weight_bytes))


def _unexamined(
    model: nn.Module, model_type: str, context_max: int, weight_bytes: int
) -> MlxLmTarget:
    args: Any = find_text_model(model).args
    sizes = [getattr(args, name, None) for name in ("vocab_size", "hidden_size")]
    if None in sizes:
        raise ModelKindError(
            f"model_type {model_type!r} is not supported",
            why="mlx-lm keeps its width or vocabulary under another name",
        )
    facts = TargetFacts(
        model_type=model_type,
        vocab_size=args.vocab_size,
        hidden_size=args.hidden_size,
        num_layers=len(find_backbone(model).layers),
        context_max=context_max,
        weight_bytes=weight_bytes,
    )
    return MlxLmTarget(model, facts)


def _examined(target: MlxLmTarget) -> MlxLmTarget:
    row_nbytes = examine(target).row_nbytes
    target.facts = replace(target.facts, kv_bytes_per_token=row_nbytes)
    return target
