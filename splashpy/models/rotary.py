# SPDX-License-Identifier: Apache-2.0
"""Rotary settings where every model of mlx-lm looks for them.

Newer checkpoints keep them in ``rope_parameters``. Models of mlx-lm that were written
before read ``rope_theta`` and ``rope_scaling`` beside it, and some of them would take
their own default instead; others rotate every position as it is, whatever scaling is
asked for. Either would be another model, without a word.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import mlx.nn as nn
from mlx_lm.models import rope_utils

_BESIDE = ("rope_theta", "partial_rotary_factor")
_SCALED = ("linear", "llama3", "yarn")
"""Kinds of scaling that change frequencies only, so that any model can have them."""


def rotary_keys(config: Mapping[str, Any]) -> dict[str, Any]:
    """What a config.json says in ``rope_parameters`` only, as older models read it.

    Models that know settings for each kind of layer do not look at these keys.

    Returns:
        Keys to add to the configuration; empty where it has them already.
    """
    added = _added(config)
    text = config.get("text_config")
    if isinstance(text, Mapping) and (inner := _added(text)):
        added["text_config"] = {**text, **inner}
    return added


def scale_rotary(model: nn.Module, config: Mapping[str, Any]) -> None:
    """Scale the positions of a model that asks for it and whose layers do not.

    Args:
        model: of mlx-lm.
        config: what it was made from, the keys of :func:`rotary_keys` included.
    """
    text = config.get("text_config") or config
    scaling = text.get("rope_scaling") or {}
    kinds = {type(module) for module in model.modules()} & _ROTARY
    if _kind(scaling) not in _SCALED or kinds != {nn.RoPE}:
        return
    found: list[Any] = [
        m for m in model.modules() if isinstance(m.get("rope"), nn.RoPE)
    ]
    if any(module.rope.scale != 1 for module in found):
        return
    for module in found:
        module.rope = rope_utils.initialize_rope(
            module.rope.dims,
            module.rope.base,
            module.rope.traditional,
            scaling,
            text.get("max_position_embeddings"),
        )


_ROTARY = {
    nn.RoPE,
    *(
        kind
        for kind in vars(rope_utils).values()
        if isinstance(kind, type) and issubclass(kind, nn.Module)
    ),
}


def _added(config: Mapping[str, Any]) -> dict[str, Any]:
    settings = config.get("rope_parameters")
    if not isinstance(settings, Mapping):
        return {}
    beside, wanted = _BESIDE, dict[str, Any]()
    if any(isinstance(value, Mapping) for value in settings.values()):
        sliding = settings.get("sliding_attention")
        if isinstance(sliding, Mapping) and "rope_theta" in sliding:
            wanted["rope_local_base_freq"] = sliding["rope_theta"]
        settings = settings.get("full_attention")
        if not isinstance(settings, Mapping):
            return {}
        beside = ("rope_theta",)  # a factor would be taken for all kinds of layers
    wanted |= {key: settings[key] for key in beside if key in settings}
    if _kind(settings) != "default":
        scaling = {key: settings[key] for key in settings if key not in _BESIDE}
        wanted["rope_scaling"] = {"type": _kind(settings), **scaling}
    return {key: value for key, value in wanted.items() if config.get(key) is None}


def _kind(settings: Mapping[str, Any]) -> str:
    return settings.get("rope_type") or settings.get("type") or "default"
