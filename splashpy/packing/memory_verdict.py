# SPDX-License-Identifier: Apache-2.0
"""Whether a model fits this computer's memory, said before it is downloaded.

Loading plans from the shapes of the weights (``engine/memory.py``). Here the same plan
is made from what files and configuration say: weights take what their files take, or
four bytes each where MLX computes on a CPU. What a configuration does not say is left
out, so that a model that would run is not told off. The verdict is advice. It asks, and
forbids nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any, Literal

from splashpy.engine.memory import Needs, budget_bytes, plan_memory
from splashpy.errors import CapacityError
from splashpy.host.device import device
from splashpy.package.model_directory import context_max
from splashpy.protocol import Device, KvFormat
from splashpy.units import format_bytes, format_tokens

Level = Literal["fits", "tight", "does not fit"]

CONTEXT = 8192
"""Tokens of a conversation the verdict counts with."""

CONTEXTS = (8192, 32768, 131_072)
"""Contexts whose memory is told, beside the model's own."""

_COMFORT = 32768  # tokens; where fewer fit, memory is tight
_GROUP = 64  # channels that share a scale and a bias in a state of 8 bits
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


@dataclass(frozen=True, slots=True)
class Share:
    """What a context of so many tokens needs.

    Attributes:
        tokens: of prompt plus answer.
        kv: how keys and values are kept.
        total_bytes: with weights and everything else.
        fits: whether that may be used.
    """

    tokens: int
    kv: KvFormat
    total_bytes: int
    fits: bool

    def __str__(self) -> str:
        fits = "fits" if self.fits else "does not fit"
        kept = " in 8 bits" if self.kv == "q8" else ""
        size = format_bytes(self.total_bytes)
        return f"{format_tokens(self.tokens)} tokens{kept}: {size}, {fits}"


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryVerdict:
    """What a model needs and what there is, in bytes.

    Attributes:
        level: ``fits``; ``tight``, which loads but leaves little for a conversation;
            or ``does not fit``, which loading would refuse.
        weights_bytes: once loaded.
        workspace_bytes: for what passes compute.
        state_bytes: of ``context`` tokens; 0 where the configuration does not tell.
        context: tokens counted with.
        budget_bytes: what may be used of this computer.
        room: tokens that fit, at most those the model was made for.
        shares: what some contexts need.
    """

    level: Level
    weights_bytes: int
    workspace_bytes: int
    state_bytes: int
    context: int
    budget_bytes: int
    room: int
    shares: tuple[Share, ...] = ()

    def __str__(self) -> str:
        weights, budget = map(format_bytes, (self.weights_bytes, self.budget_bytes))
        state = (
            f" and {format_bytes(self.state_bytes)} for "
            f"{format_tokens(self.context)} tokens"
            if self.state_bytes
            else ""
        )
        known = self.room and self.state_bytes
        room = f", room for {format_tokens(self.room)} tokens" if known else ""
        return (
            f"memory: {self.level}: {weights} of weights{state}; "
            f"{budget} may be used{room}"
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
    budget = budget_bytes(machine.working_set_bytes or machine.memory_bytes, None)
    if not budget or not parts or not parts[0].num_bytes:
        return None
    needs = needs_of(parts, config, on_cpu=not machine.working_set_bytes)
    context = min(CONTEXT, needs.context_max)
    try:
        room = plan_memory(needs, budget).context
    except CapacityError:
        level, room = "does not fit", max(needs.room("bf16", budget), 0)
    else:
        level = "fits" if room >= min(_COMFORT, needs.context_max) else "tight"
    return MemoryVerdict(
        level=level,
        weights_bytes=needs.target + needs.draft,
        workspace_bytes=needs.workspace,
        state_bytes=needs.row * context,
        context=context,
        budget_bytes=budget,
        room=room,
        shares=tuple(_shares(needs, budget)),
    )


def needs_of(
    parts: Sequence[Weights], config: Mapping[str, Any], *, on_cpu: bool
) -> Needs:
    """What loading plans with, from files and configuration alone.

    Args:
        parts: the target's weights first, then its drafter's.
        config: the target's config.json; may be empty.
        on_cpu: everything becomes float32.
    """
    target, *others = (
        round(part.num_bytes * (32 / part.bits if on_cpu else 1)) for part in parts
    )
    width = 4 if on_cpu else 2
    channels, size = _row(config)
    # A number of 8 bits and its share of a scale and a bias.
    packed = 1 + 2 * width / _GROUP
    return Needs(
        target=target,
        draft=sum(others),
        row=width * channels,
        row_q8=0 if size % _GROUP else round(packed * channels),
        context_max=context_max(dict(config)),
    )


def _shares(needs: Needs, budget: int) -> Iterable[Share]:
    """What some contexts need; in 8 bits where only that fits."""
    smaller = [tokens for tokens in CONTEXTS if tokens < needs.context_max]
    for tokens in (*smaller, needs.context_max):
        packed = bool(needs.row_q8) and needs.total("bf16", tokens) > budget
        packed = packed and needs.total("q8", tokens) <= budget
        kv: KvFormat = "q8" if packed else "bf16"
        total = needs.total(kv, tokens)
        yield Share(tokens, kv, total, total <= budget)


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


def _row(config: Mapping[str, Any]) -> tuple[int, int]:
    """Numbers one token adds to keys and values, and the channels of a head.

    0 for attention of another kind than known.
    """
    text = _text(config)
    heads, layers = text.get("num_attention_heads"), _attention_layers(text)
    key_heads = text.get("num_key_value_heads", heads)
    size: Any = text.get("head_dim")
    if size is None and _counts(text.get("hidden_size"), heads):
        size = text["hidden_size"] // heads
    if size is None or "kv_lora_rank" in text or not _counts(layers, key_heads, size):
        return 0, 0
    return 2 * layers * key_heads * size, size


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
