# SPDX-License-Identifier: Apache-2.0
"""Which contests a loaded model needs: the shapes its passes of a few rows have."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import mlx.core as mx
import mlx.nn as nn

from splashpy.kernels import contests
from splashpy.kernels.contest import Contest
from splashpy.kernels.roofline import Delta
from splashpy.models.dflash2 import DFlashNetwork
from splashpy.models.gated_delta import find_delta_layers
from splashpy.models.row_layers import packed
from splashpy.models.target import MlxLmTarget

FEWEST_OUTPUTS = 1024
"""A smaller projection is not worth a kernel's cost on the host."""

LENGTHS = (2048, 4096, 8192, 16_384, 32_768)
"""Keys that attention is tried on; the verdict of one holds up to the next, and fewer
keys are left to MLX."""

Matrix = tuple[int, int, int, int]
"""Outputs, inputs, bits, group."""


def target_contests(target: MlxLmTarget, rows: Sequence[int]) -> list[Contest]:
    """What passes of these numbers of rows could use kernels for."""
    model, layers = target._model, target._backbone.layers
    vocab = target.facts.vocab_size
    dtype = _dtype(model)
    found: list[Contest] = []
    for count in rows:
        found += _products(model, count, dtype)
        found += contests.target_choices(count, vocab)
        found.append(contests.accept(count - 1))
        for channels in sorted(_norm_widths(layers)):
            found.append(contests.add_norm(count, channels, dtype))
        for heads in sorted(_heads(layers)):
            for length in LENGTHS:
                found += [
                    contests.attention(count, heads, length, dtype, packed=packed)
                    for packed in (False, True)
                ]
        for layer in sorted(_deltas(layers), key=repr):
            found += contests.delta(count, layer, dtype)
    return found


def draft_contests(network: DFlashNetwork, rows: int) -> list[Contest]:
    """What a draft of ``rows`` rows could use kernels for."""
    config, dtype = network.config, network.dtype
    heads = (config.num_heads, config.num_kv_heads, config.head_dim)
    found = _products(network, rows, dtype)
    found.append(contests.attention(rows, heads, LENGTHS[0], dtype, causal=False))
    if config.version == 2:
        size, taps = config.hidden_size, config.conv_kernel_size
        found += contests.convolutions(rows, size, taps, config.conv_group_size, dtype)
        found.append(
            contests.choice(
                rows - 1,
                config.vocab_size,
                config.head_rows,
                config.selector_top_k,
                config.selector_rank,
            )
        )
    return found


def _products(model: nn.Module, rows: int, dtype: mx.Dtype) -> list[Contest]:
    """Every matrix once, and every pair that a gated MLP multiplies together."""
    pairs, single = set(_gated(model)), set(_matrices(model))
    return [
        *(contests.gated(rows, *shape, dtype) for shape in sorted(pairs)),
        *(contests.matrix(rows, *shape, dtype) for shape in sorted(single)),
    ]


def _matrices(model: nn.Module) -> Iterator[Matrix]:
    for module in model.modules():
        shape = _matrix(module)
        if shape and shape[0] >= FEWEST_OUTPUTS:
            yield shape


def _gated(model: nn.Module) -> Iterator[Matrix]:
    for module in model.modules():
        opening, value = module.get("gate_proj"), module.get("up_proj")
        if opening is None or value is None:
            continue
        shape = _matrix(opening)
        if shape and shape == _matrix(value):
            yield shape


def _matrix(module: nn.Module) -> Matrix | None:
    matrix = packed(module)
    if matrix is None:
        return None
    return matrix.outputs, matrix.inputs, matrix.bits, matrix.group_size


def _norm_widths(layers: Sequence[nn.Module]) -> set[int]:
    norms = [layer.get("post_attention_layernorm") for layer in layers]
    return {norm.weight.shape[0] for norm in norms if isinstance(norm, nn.RMSNorm)}


def _heads(layers: Sequence[nn.Module]) -> set[tuple[int, int, int]]:
    """Query heads, key heads and width of full attention, as families name them."""
    found: set[tuple[int, int, int]] = set()
    for layer in layers:
        module: Any = layer.get("self_attn")
        heads = _first(module, "n_heads", "num_attention_heads")
        groups = _first(module, "n_kv_heads", "num_key_value_heads")
        projection = module.get("k_proj") if module is not None else None
        if not heads or not groups or projection is None:
            continue
        outputs = projection.weight.shape[0]
        found.add((heads, groups, outputs // groups))
    return found


def _first(module: Any, *names: str) -> int:
    return next((getattr(module, n) for n in names if hasattr(module, n)), 0)


def _deltas(layers: Sequence[nn.Module]) -> set[Delta]:
    known: list[Any] = find_delta_layers(layers)
    return {
        Delta(
            layers=1,
            key_heads=layer.num_k_heads,
            value_heads=layer.num_v_heads,
            key_width=layer.head_k_dim,
            value_width=layer.head_v_dim,
            taps=layer.conv_kernel_size,
        )
        for layer in known
    }


def _dtype(model: nn.Module) -> mx.Dtype:
    """What activations are computed in: the type of the scales or of the norms."""
    for module in model.modules():
        if isinstance(module, nn.RMSNorm):
            return module.weight.dtype
    return mx.bfloat16
