# SPDX-License-Identifier: Apache-2.0
"""Whether a model fits this computer's memory, said before it is downloaded.

Weights take what their files take; where MLX computes on a CPU they become float32.
The state of attention is added for a short conversation. Too little is known for more:
what a configuration does not say is left out, so that a model that would run is not
told off. The verdict is advice. It asks, and forbids nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any, Literal

from splashpy.host.device import device
from splashpy.package.model_directory import context_max
from splashpy.protocol import Device
from splashpy.units import format_bytes, format_tokens

Level = Literal["fits", "tight", "does not fit"]

CONTEXT = 8192
"""Tokens of a conversation the verdict counts with."""

_WORKSPACE = 1.1  # activations and buffers beside weights and state
_SCALE_BITS = 32  # scale and bias of a group, 16 bits each
_UNPACKED_BITS = 16
_TYPE_BITS = {"float32": 32, "bfloat16": 16, "float16": 16}

# The type of most weights is part of a GGUF file's name.
_GGUF_TYPE = re.compile(
    r"(?:^|[-_.])(?:i?q([1-8])(_1)?(?:[-_.k]|$)|b?f(16|32)\b)", re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class Weights:
    """Weights in files.

    Attributes:
        num_bytes: of the files; 0 when not known.
        bits: of a weight in them, about, with its share of scale and bias.
    """

    num_bytes: int
    bits: float = _UNPACKED_BITS

    def packed(self, bits: int, group_size: int) -> Weights:
        """What packing makes of them; what is packed already stays as it is."""
        if self.bits < _UNPACKED_BITS or bits >= _UNPACKED_BITS:
            return self
        packed = bits + _SCALE_BITS / group_size
        return Weights(round(self.num_bytes * packed / self.bits), packed)


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryVerdict:
    """What a model needs and what there is, in bytes.

    Attributes:
        level: ``fits``; ``tight``, which loads but leaves little for a conversation;
            or ``does not fit``, where the weights alone are more than there is.
        weights_bytes: once loaded.
        state_bytes: of ``context`` tokens; 0 where the configuration does not tell.
        context: tokens counted with.
        budget_bytes: what this computer allows.
    """

    level: Level
    weights_bytes: int
    state_bytes: int
    context: int
    budget_bytes: int

    def __str__(self) -> str:
        weights, budget = map(format_bytes, (self.weights_bytes, self.budget_bytes))
        state = (
            f" and {format_bytes(self.state_bytes)} for "
            f"{format_tokens(self.context)} tokens"
            if self.state_bytes
            else ""
        )
        return (
            f"memory: {self.level}: {weights} of weights{state}; "
            f"this computer allows {budget}"
        )


def judge(
    parts: Sequence[Weights], config: Mapping[str, Any], machine: Device | None = None
) -> MemoryVerdict | None:
    """Compare a model with a machine.

    Args:
        parts: the target's weights first, then its drafter's.
        config: the target's config.json; may be empty.
        machine: None is this computer.

    Returns:
        None when too little is known for a verdict.
    """
    machine = machine or device("")
    budget = machine.working_set_bytes or machine.memory_bytes
    if not budget or not parts or not parts[0].num_bytes:
        return None
    on_cpu = not machine.working_set_bytes
    weights = round(
        sum(part.num_bytes * (32 / part.bits if on_cpu else 1) for part in parts)
    )
    context = min(CONTEXT, context_max(dict(config)))
    state = _state_bytes(config, context) * (2 if on_cpu else 1)
    level: Level = "fits"
    if weights > budget:
        level = "does not fit"
    elif (weights + state) * _WORKSPACE > budget:
        level = "tight"
    return MemoryVerdict(
        level=level,
        weights_bytes=weights,
        state_bytes=state,
        context=context,
        budget_bytes=budget,
    )


def loaded_bytes(files: Iterable[tuple[str, int]]) -> int:
    """Bytes of the files a loader reads among those of a model.

    Some repositories hold their weights twice, the second time as another name than
    ``model*.safetensors``; mlx-lm does not read those. A ``.bin`` counts in the folders
    of a Splash package only.

    Args:
        files: path and size.
    """
    total = 0
    for path, size in files:
        folder, _, name = path.rpartition("/")
        weights = name.startswith("model") and name.endswith(".safetensors")
        splash = folder in ("target", "draft") and name.endswith(".bin")
        if weights or splash or name.endswith(".gguf"):
            total += size
    return total


def stored_bits(config: Mapping[str, Any]) -> float:
    """Bits of a weight by its config.json, with its share of scale and bias."""
    packed = config.get("quantization")
    if isinstance(packed, Mapping):
        bits: Any = packed.get("bits")
        group: Any = packed.get("group_size")
        if _counts(bits, group):
            return bits + _SCALE_BITS / group
    named = _text(config).get("dtype") or _text(config).get("torch_dtype")
    return _TYPE_BITS.get(str(named or config.get("torch_dtype")), _UNPACKED_BITS)


def gguf_bits(file: str) -> float:
    """Bits of a weight by the name of a GGUF file; unpacked when it tells nothing."""
    found = list(_GGUF_TYPE.finditer(PurePosixPath(file).stem))
    if not found:
        return _UNPACKED_BITS
    packed, bias, plain = found[-1].groups()
    return int(packed) + (1.0 if bias else 0.5) if packed else int(plain)


def _state_bytes(config: Mapping[str, Any], context: int) -> int:
    """Keys and values in 16 bits; 0 for attention of another kind than known."""
    text = _text(config)
    heads, layers = text.get("num_attention_heads"), _attention_layers(text)
    key_heads = text.get("num_key_value_heads", heads)
    size = text.get("head_dim")
    if size is None and _counts(text.get("hidden_size"), heads):
        size = text["hidden_size"] // heads
    if "kv_lora_rank" in text or not _counts(layers, key_heads, size):
        return 0
    return 2 * 2 * layers * key_heads * size * context


def _attention_layers(text: Mapping[str, Any]) -> Any:
    """Layers whose state grows with the whole context."""
    kinds = text.get("layer_types")
    if isinstance(kinds, list):
        return kinds.count("full_attention")
    layers: Any = text.get("num_hidden_layers")
    interval: Any = text.get("full_attention_interval")
    return layers // interval if _counts(layers, interval) else layers


def _counts(*values: Any) -> bool:
    return all(type(value) is int and value > 0 for value in values)


def _text(config: Mapping[str, Any]) -> Mapping[str, Any]:
    text = config.get("text_config")
    return text if isinstance(text, Mapping) else config
