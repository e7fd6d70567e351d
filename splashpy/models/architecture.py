# SPDX-License-Identifier: Apache-2.0
"""What splashpy must know about an mlx-lm model beyond calling it.

Where its layers are, which lane each of them needs, and how hidden rows become logits.
The lanes follow from the caches the model itself would make; the rest holds for every
model whose ``head`` over its backbone equals the model, which is checked at load.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import mlx.core as mx
import mlx.nn as nn
from mlx_lm.models.cache import (
    ArraysCache,
    CacheList,
    KVCache,
    RotatingKVCache,
    make_prompt_cache,
)
from mlx_lm.models.gemma4_text import logit_softcap

from splashpy.errors import ModelKindError
from splashpy.models.attention_lanes import LaneKV, LaneList, LaneRotKV
from splashpy.models.recurrent_lane import LaneRecurrent
from splashpy.models.state import Lane

DRAFTABLE = (
    "deepseek_v3",
    "gemma4",
    "gemma4_text",
    "glm_moe_dsa",
    "gpt_oss",
    "kimi_k25",
    "llama",
    "minimax",
    "muse_glimmer",
    "qwen3",
    "qwen3_5",
    "qwen3_5_moe",
    "qwen3_moe",
    "qwen3_next",
)
"""Modules of mlx-lm whose features and head a drafter network may borrow."""

MakeLane = Callable[[int], Lane]
"""Rows to reserve to an empty lane."""


def module_name(model: nn.Module) -> str:
    """The mlx-lm module a model comes from, such as ``qwen3_5``."""
    return type(model).__module__.rpartition(".")[2]


def find_backbone(model: Any) -> Any:
    """The module that holds the embedding, the decoder layers and the final norm.

    Raises:
        ModelKindError: the model has no such module, or only a part of its layers.
    """
    for path in ("language_model.model", "model", "backbone"):
        module = model
        for name in path.split("."):
            module = getattr(module, name, None)
        if hasattr(module, "layers") and hasattr(module, "embed_tokens"):
            _require_every_layer(module)
            return module
    raise ModelKindError(
        f"{type(model).__module__} has no list of decoder layers beside its embedding"
    )


def _require_every_layer(backbone: Any) -> None:
    """mlx-lm leaves None for the layers of a pipelined model that run elsewhere."""
    absent = sum(layer is None for layer in backbone.layers)
    if absent:
        raise ModelKindError(
            f"{type(backbone).__module__} is split over several machines",
            why=f"{absent} of {len(backbone.layers)} layers are not here",
        )


def find_text_model(model: Any) -> Any:
    """The module that holds the backbone, its head and its sizes (``args``)."""
    inner = getattr(model, "language_model", None)
    return model if inner is None else inner


def lane_makers(model: nn.Module, whole: type[LaneKV] = LaneKV) -> list[MakeLane]:
    """What to make for each cache the model asks for, in its order.

    Args:
        model: whose caches they stand for.
        whole: the lane of full attention. An indexer's pair of lanes, windows and
            recurrent states are what they are.

    Raises:
        ModelKindError: a cache is of a kind that cannot be rolled back exactly.
    """
    return [_maker(cache, model, whole) for cache in make_prompt_cache(model)]


def _maker(cache: Any, model: nn.Module, whole: type[LaneKV]) -> MakeLane:
    if type(cache) is KVCache:
        return whole
    if type(cache) is RotatingKVCache and not cache.keep:
        return partial(LaneRotKV, cache.max_size)
    if type(cache) is ArraysCache:
        size = len(cache.cache)
        return lambda _: LaneRecurrent(size)
    if type(cache) is CacheList and all(type(c) is KVCache for c in cache.caches):
        count = len(cache.caches)
        return lambda rows: LaneList(*(LaneKV(rows) for _ in range(count)))
    raise ModelKindError(
        f"models of mlx_lm.models.{module_name(model)} cannot run here",
        why=f"a layer keeps a {type(cache).__name__}, which cannot be cut exactly",
    )


def logit_transform(text_model: Any) -> Callable[[mx.array], mx.array]:
    """What a family does to its head's output before anyone reads it as logits."""
    family = module_name(text_model)
    if family == "gemma4_text" and text_model.final_logit_softcapping is not None:
        return partial(logit_softcap, text_model.final_logit_softcapping)
    if family == "muse_glimmer":
        args = text_model.args
        return partial(_capped, args.output_multiplier, args.final_logit_softcapping)
    return _unchanged


def _capped(factor: float, cap: float, logits: mx.array) -> mx.array:
    return mx.tanh(logits * factor / cap) * cap


def _unchanged(logits: mx.array) -> mx.array:
    return logits
