# SPDX-License-Identifier: Apache-2.0
"""Where a drafter starts from: published weights, the target's layers, or new ones.

A new drafter begins as its plain version 1 self: the convolutions are the identity and
the selector adds nothing, until training changes them. Where its layers have the
widths of the target's, they begin as copies of some of those: a layer that already
reads the residual stream learns faster than a random one.

Source of the values: NVIDIA-NeMo/Automodel, draft_qwen3_dflash2.py (Apache-2.0).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx.nn as nn
from mlx.utils import tree_flatten

from splashpy.errors import UsageError
from splashpy.models.architecture import find_backbone, find_text_model
from splashpy.models.dflash2 import DecoderLayer, DFlashNetwork
from splashpy.models.dflash2_config import check_pair
from splashpy.models.dflash2_load import load_drafter
from splashpy.models.dflash2_parse import parse_config
from splashpy.models.target import MlxLmTarget
from splashpy.training.random_keys import Stream, key_of

_SPREAD = 0.02  # standard deviation of new weights
_EPS = 1e-6
_PROJECTIONS = {
    "self_attn": ("q_proj", "k_proj", "v_proj", "o_proj"),
    "mlp": ("gate_proj", "up_proj", "down_proj"),
}
_NORMS = ("input_layernorm", "post_attention_layernorm")


@dataclass(frozen=True, slots=True, kw_only=True)
class Geometry:
    """The shape of a new drafter; None means the target's value or the usual rule.

    Attributes:
        mask_token_id: a token of the target that no text contains.
        layers: decoder layers.
        block_size: rows of a block, the anchor included.
        feature_layers: target layers it reads; None spreads one per drafter layer.
        source_layers: target layers its own begin as; None spreads them over those
            of the target that attend, () begins with new weights.
        window: positions a row sees; None sees everything.
        num_heads, num_kv_heads, head_dim, intermediate_size: widths of its layers.
        conv_kernel_size, conv_group_size: of the convolutions.
        selector_rank, selector_top_k: of the selector.
    """

    mask_token_id: int
    layers: int = 3
    block_size: int = 8
    feature_layers: tuple[int, ...] | None = None
    source_layers: tuple[int, ...] | None = None
    window: int | None = 2048
    num_heads: int | None = None
    num_kv_heads: int | None = None
    head_dim: int | None = None
    intermediate_size: int | None = None
    conv_kernel_size: int = 2
    conv_group_size: int = 16
    selector_rank: int = 32
    selector_top_k: int = 16


@dataclass(frozen=True, slots=True)
class Student:
    """A drafter in training.

    Attributes:
        network: its weights, float32 on a CPU and bfloat16 otherwise.
        config: its config.json.
        origin: the directory it was loaded from; None for a new one.
        began: its weights before the first step, by name.
        dtype: of what is not packed, as it is written.
    """

    network: DFlashNetwork
    config: dict[str, Any]
    origin: Path | None
    began: dict[str, mx.array]
    dtype: mx.Dtype = mx.bfloat16

    @property
    def weights(self) -> dict[str, mx.array]:
        """Its weights now, by name."""
        return _weights(self.network)

    @property
    def changed(self) -> bool:
        """Whether any weight differs from where it began."""
        return any(
            not mx.array_equal(array, self.began[name]).item()
            for name, array in self.weights.items()
        )


def load_student(directory: Path, target: MlxLmTarget) -> Student:
    """Continue with a drafter in the published layout.

    Packed matrices are unpacked: there is no gradient for their bits.

    Raises:
        PairError: it was not made for this target.
        ModelKindError: it is no drafter.
        IntegrityError: a file is missing or damaged.
    """
    network = load_drafter(directory, target.facts, bits=16)
    config = json.loads((directory / "config.json").read_text("utf-8"))
    return Student(
        network, config, directory, _weights(network), _stored_dtype(directory)
    )


def new_student(target: MlxLmTarget, geometry: Geometry, seed: int = 0) -> Student:
    """Begin a drafter.

    Args:
        target: whose words it shall guess.
        geometry: its shape.
        seed: of the weights that are drawn.

    Raises:
        ModelKindError: the geometry contradicts itself.
        PairError: it does not fit the target.
        UsageError: the number of source layers is not the number of layers.
    """
    config = published_config(target, geometry)
    parsed = parse_config(config, "the new drafter")
    check_pair(parsed, target.facts)
    network = DFlashNetwork(parsed)
    _draw_weights(network, key_of(seed, Stream.WEIGHTS, 0))
    sources = geometry.source_layers
    if sources is None:
        attending = _attending(target)
        sources = [attending[i] for i in _spread(len(attending), geometry.layers)]
    if sources:
        _copy_layers(network, target, sources)
    if mx.default_device() != mx.cpu:
        network.set_dtype(mx.bfloat16)
    mx.eval(network.parameters())
    return Student(network, config, None, _weights(network))


def published_config(target: MlxLmTarget, geometry: Geometry) -> dict[str, Any]:
    """The config.json of a new drafter."""
    args = _arguments(target)
    facts, layers = target.facts, geometry.layers
    head_dim = getattr(args, "head_dim", None)
    head_dim = head_dim or args.hidden_size // args.num_attention_heads
    kind = "full_attention" if geometry.window is None else "sliding_attention"
    features = geometry.feature_layers or _spread(facts.num_layers, layers)
    return {
        "architectures": ["DFlash2DraftModel"],
        "model_type": "qwen3",
        "hidden_size": facts.hidden_size,
        "intermediate_size": geometry.intermediate_size or args.intermediate_size,
        "num_hidden_layers": layers,
        "num_attention_heads": geometry.num_heads or args.num_attention_heads,
        "num_key_value_heads": geometry.num_kv_heads or args.num_key_value_heads,
        "head_dim": geometry.head_dim or head_dim,
        "hidden_act": "silu",
        "attention_bias": False,
        "vocab_size": facts.vocab_size,
        "rms_norm_eps": _EPS,
        "max_position_embeddings": facts.context_max,
        "num_target_layers": facts.num_layers,
        "rope_parameters": {"rope_theta": _rope_base(args), "rope_type": "default"},
        "layer_types": [kind] * layers,
        "sliding_window": geometry.window,
        "use_sliding_window": geometry.window is not None,
        "is_causal": False,
        "tie_word_embeddings": False,
        "dtype": "bfloat16",
        "dflash_config": {
            "block_size": geometry.block_size,
            "mask_token_id": geometry.mask_token_id,
            "target_layer_ids": list(features),
            "conv_kernel_size": geometry.conv_kernel_size,
            "conv_group_size": geometry.conv_group_size,
            "selector_rank": geometry.selector_rank,
            "selector_top_k": geometry.selector_top_k,
        },
    }


def _arguments(target: MlxLmTarget) -> Any:
    """The sizes of the text model; a model that sees has others of its own."""
    return find_text_model(target._model).args


def _rope_base(args: Any) -> float:
    named = getattr(args, "rope_parameters", None) or {}
    # A family with windows has parameters of its own for either kind of attention.
    named = named.get("full_attention", named)
    base = named.get("rope_theta") or getattr(args, "rope_theta", None)
    return float(base or 10000.0)


def _attending(target: MlxLmTarget) -> list[int]:
    """Layers with attention: a recurrent layer has nothing a drafter's could copy."""
    layers = find_backbone(target._model).layers
    return [i for i, layer in enumerate(layers) if hasattr(layer, "self_attn")]


def _weights(network: DFlashNetwork) -> dict[str, mx.array]:
    flat: Any = tree_flatten(network.parameters())
    return dict(flat)


def _stored_dtype(directory: Path) -> mx.Dtype:
    """What the norms are stored as; they are never packed."""
    for file in directory.glob("model*.safetensors"):
        arrays = mx.load(str(file))  # nothing is read before it is used
        assert isinstance(arrays, dict)
        for name, array in arrays.items():
            if name.endswith("norm.weight"):
                return array.dtype
    return mx.bfloat16


def _spread(depth: int, count: int) -> tuple[int, ...]:
    """Layers from the second to the third from the end, evenly."""
    if count == 1:
        return (depth // 2,)
    step = max(depth - 4, 0) / (count - 1)
    return tuple(min(round(1 + i * step), depth - 1) for i in range(count))


def _draw_weights(network: DFlashNetwork, key: mx.array) -> None:
    drawn: list[tuple[str, mx.array]] = []
    for name, array in _weights(network).items():
        key, own = mx.random.split(key)
        if name.endswith("base_kernel"):
            value = mx.concatenate(
                [mx.ones_like(array[:, :1]), mx.zeros_like(array[:, 1:])], axis=1
            )
        elif name.endswith(("kernel_projection.weight", "successor_codebook")):
            value = mx.zeros_like(array)
        elif array.ndim == 1:
            value = mx.ones_like(array)
        else:
            value = mx.random.normal(array.shape, scale=_SPREAD, key=own)
        drawn.append((name, value))
    network.load_weights(drawn)


def _copy_layers(
    network: DFlashNetwork, target: MlxLmTarget, sources: Sequence[int]
) -> None:
    """Begin every layer as one of the target's, as far as their shapes agree."""
    backbone = find_backbone(target._model)
    if len(sources) != len(network.layers):
        raise UsageError(
            f"{len(sources)} source layers for {len(network.layers)} drafter layers"
        )
    if not all(0 <= source < len(backbone.layers) for source in sources):
        raise UsageError(
            f"source layers are {list(sources)}; the target has 0 to "
            f"{len(backbone.layers) - 1}"
        )
    traditional = bool(getattr(_arguments(target), "rope_traditional", False))
    for layer, source in zip(network.layers, sources, strict=True):
        _copy_layer(layer, backbone.layers[source], halves=traditional)
    # The context takes the place of a layer's normed input; before training it is
    # the mean of the features.
    norms = [backbone.layers[source].input_layernorm.weight for source in sources]
    network.hidden_norm.weight = mx.stack(norms).mean(axis=0).astype(mx.float32)
    taps = len(network.config.feature_layers)
    identity = mx.eye(network.config.hidden_size) / taps
    network.fc.weight = mx.concatenate([identity] * taps, axis=1)
    network.norm.weight = backbone.norm.weight.astype(mx.float32)


def _copy_layer(layer: DecoderLayer, source: Any, *, halves: bool) -> None:
    for part, names in _PROJECTIONS.items():
        there = getattr(source, part, None)
        for name in names:
            theirs = getattr(there, name, None)
            ours = getattr(getattr(layer, part), name)
            if theirs is None or "bias" in theirs:
                continue
            weight = _matrix(theirs, ours.weight.shape[1])
            if weight.shape == ours.weight.shape:
                if halves and name in ("q_proj", "k_proj"):
                    weight = _halves(weight, layer.self_attn.q_norm.weight.shape[0])
                ours.weight = weight
    attention = getattr(source, "self_attn", None)
    for name in ("q_norm", "k_norm"):
        theirs = getattr(attention, name, None)
        ours = getattr(layer.self_attn, name)
        if theirs is not None and theirs.weight.shape == ours.weight.shape:
            ours.weight = theirs.weight.astype(mx.float32)
    for name in _NORMS:
        getattr(layer, name).weight = getattr(source, name).weight.astype(mx.float32)


def _matrix(linear: Any, inputs: int) -> mx.array:
    """The weights of a linear layer, however they are stored."""
    if isinstance(linear, nn.QuantizedLinear):
        return linear(mx.eye(inputs)).T.astype(mx.float32)
    return linear.weight.astype(mx.float32)


def _halves(weight: mx.array, head_dim: int) -> mx.array:
    """Rows of rotary pairs side by side, reordered to two halves."""
    heads = weight.reshape(-1, head_dim // 2, 2, weight.shape[1])
    return heads.swapaxes(1, 2).reshape(weight.shape)
