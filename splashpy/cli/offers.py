# SPDX-License-Identifier: Apache-2.0
"""Models the chat can offer, with the numbers that say whether they fit."""

from __future__ import annotations

import os
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from splashpy.chat.fit import Offer
from splashpy.package.library import InstalledModel, Library
from splashpy.package.model_directory import ModelDirectory
from splashpy.package.names import KNOWN
from splashpy.paths import Paths

_BYTES = 2  # of a key or value kept as computed, in bfloat16
_FLOAT_BITS = 32


def offers(paths: Paths) -> list[Offer]:
    """Installed models, then the known ones that can be pulled."""
    installed = Library(paths).installed()
    names = {model.name for model in installed}
    missing = [
        Offer(name=known.name, about=known.about)
        for known in KNOWN
        if known.name not in names
    ]
    return [*map(_offer, installed), *missing]


def _offer(model: InstalledModel) -> Offer:
    config = ModelDirectory.open(model.path).config
    used = model.last_used
    return Offer(
        name=model.name,
        path=str(model.path),
        revision=model.revision,
        about=f"{model.kind} {model.model_type}",
        size_bytes=model.size_bytes,
        unpacked_bytes=round(model.size_bytes * _FLOAT_BITS / _bits(config)),
        kv_per_token=kv_per_token(config),
        context_max=model.context_max,
        has_draft=model.has_draft,
        last_used=f"{datetime.fromtimestamp(used):%Y-%m-%d}" if used else "",
    )


def kv_per_token(config: Mapping[str, Any]) -> int:
    """Bytes of keys and values a token adds, by config.json; 0 when it does not say.

    Layers of another kind than full attention keep a state that does not grow.
    """
    nested = config.get("text_config")
    facts = {**config, **(nested if isinstance(nested, dict) else {})}
    heads = facts.get("num_key_value_heads") or facts.get("num_attention_heads")
    layers, size = _full_layers(facts), facts.get("head_dim")
    if size is None and facts.get("hidden_size") and facts.get("num_attention_heads"):
        size = facts["hidden_size"] // facts["num_attention_heads"]
    if not (isinstance(heads, int) and isinstance(size, int)):
        return 0
    return max(2 * layers * heads * size * _BYTES, 0)


def _full_layers(facts: Mapping[str, Any]) -> int:
    kinds = facts.get("layer_types")
    if isinstance(kinds, list):
        return sum(kind == "full_attention" for kind in kinds)
    layers, interval = (
        facts.get("num_hidden_layers"),
        facts.get("full_attention_interval"),
    )
    if not isinstance(layers, int):
        return 0
    return layers // interval if isinstance(interval, int) and interval > 0 else layers


def _bits(config: Mapping[str, Any]) -> float:
    """Bits a weight takes on disk, scales included."""
    packed = config.get("quantization")
    if not isinstance(packed, dict) or not packed.get("group_size"):
        return 16
    return packed.get("bits", 4) + _FLOAT_BITS / packed["group_size"]


def free_memory() -> int | None:
    """Bytes no program uses; None where the platform does not say."""
    try:
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError):  # macOS
        return None
