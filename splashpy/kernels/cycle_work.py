# SPDX-License-Identifier: Apache-2.0
"""The operations of one cycle, their number and their work, for any geometry.

A cycle is a draft pass, where there is a drafter, and the pass of the target that
verifies it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from splashpy.kernels.roofline import (
    Delta,
    Work,
    add_rms_norm,
    attention,
    convolution,
    delta_prework,
    delta_verify,
    gated,
    matrix,
    selector,
    top_tokens,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Geometry:
    """What of a target decides the work of a pass.

    Attributes:
        layers: with full attention.
        output_gate: attention's queries bring a gate of their own size.
    """

    hidden: int
    vocab: int
    intermediate: int
    layers: int
    heads: int
    groups: int
    width: int
    output_gate: bool = False
    delta: Delta | None = None
    bits: int = 4
    group_size: int = 64

    @property
    def depth(self) -> int:
        """All layers."""
        return self.layers + (self.delta.layers if self.delta else 0)

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> Geometry:
        """From a config.json of a dense model."""
        text: Mapping[str, Any] = config.get("text_config") or config
        packed = config.get("quantization") or {}
        heads = int(text["num_attention_heads"])
        hidden, depth = int(text["hidden_size"]), int(text["num_hidden_layers"])
        full = depth
        delta = None
        if "linear_num_value_heads" in text:
            full = depth // int(text.get("full_attention_interval", 4))
            delta = Delta(
                layers=depth - full,
                key_heads=int(text["linear_num_key_heads"]),
                value_heads=int(text["linear_num_value_heads"]),
                key_width=int(text["linear_key_head_dim"]),
                value_width=int(text["linear_value_head_dim"]),
                taps=int(text.get("linear_conv_kernel_dim", 4)),
            )
        return cls(
            hidden=hidden,
            vocab=int(text["vocab_size"]),
            intermediate=int(text["intermediate_size"]),
            layers=full,
            heads=heads,
            groups=int(text.get("num_key_value_heads") or heads),
            width=int(text.get("head_dim") or hidden // heads),
            output_gate=delta is not None,
            delta=delta,
            bits=int(packed.get("bits", 16)),
            group_size=int(packed.get("group_size", 64)),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftGeometry:
    """What of a DFlash 2 drafter decides the work of a draft."""

    layers: int
    heads: int
    groups: int
    width: int
    intermediate: int
    window: int
    features: int
    block: int = 8
    taps: int = 2
    conv_group: int = 16
    rank: int = 256
    count: int = 16
    bits: int = 4
    group_size: int = 64


QWEN38_27B = Geometry(
    hidden=5120,
    vocab=248_320,
    intermediate=17_408,
    layers=16,
    heads=24,
    groups=4,
    width=256,
    output_gate=True,
    delta=Delta(
        layers=48,
        key_heads=16,
        value_heads=48,
        key_width=128,
        value_width=128,
        taps=4,
    ),
)
DFLASH2_27B = DraftGeometry(
    layers=5,
    heads=32,
    groups=8,
    width=128,
    intermediate=17_408,
    window=2048,
    features=5,
)


@dataclass(frozen=True, slots=True)
class Part:
    """One operation of a cycle.

    Attributes:
        kernel: name of the operation.
        what: where it stands.
        times: how often per cycle.
        work: of one time.
        shape: of a matrix: outputs, inputs, bits, group; empty for other operations.
    """

    kernel: str
    what: str
    times: int
    work: Work
    shape: tuple[int, ...] = ()

    @property
    def total(self) -> Work:
        """Of all times."""
        return self.work * self.times


def verify_parts(
    model: Geometry, rows: int, length: int, *, kv_item: int = 2
) -> list[Part]:
    """The operations of a pass of ``rows`` rows over ``length`` keys."""

    def product(what: str, times: int, outputs: int, inputs: int) -> Part:
        shape = (outputs, inputs, model.bits, model.group_size)
        return Part("qmm_rows", what, times, matrix(rows, *shape), shape)

    size = model.heads * model.width
    inside = (model.intermediate, model.hidden, model.bits, model.group_size)
    parts = [
        Part(
            "gated_rows",
            "MLP gate and up",
            model.depth,
            gated(rows, *inside),
            inside,
        ),
        product("MLP down", model.depth, model.hidden, model.intermediate),
        product("queries", model.layers, size * (1 + model.output_gate), model.hidden),
        product(
            "keys and values",
            2 * model.layers,
            model.groups * model.width,
            model.hidden,
        ),
        product("attention output", model.layers, model.hidden, size),
        product("head", 1, model.vocab, model.hidden),
        Part(
            "attention_rows",
            f"over {length} keys",
            model.layers,
            attention(rows, model.heads, model.groups, model.width, length, kv_item),
        ),
        Part("add_rms_norm", "stream", model.depth, add_rms_norm(rows, model.hidden)),
        Part("top_tokens", "target's choice", 1, top_tokens(rows, model.vocab, 1)),
    ]
    return parts + _delta_parts(model, rows)


def _delta_parts(model: Geometry, rows: int) -> list[Part]:
    delta = model.delta
    if delta is None:
        return []
    values = delta.value_heads * delta.value_width

    def product(what: str, times: int, outputs: int, inputs: int) -> Part:
        shape = (outputs, inputs, model.bits, model.group_size)
        work = matrix(rows, *shape)
        return Part("qmm_rows", what, times * delta.layers, work, shape)

    state = delta_verify(rows, delta, old_rows=rows)
    before = delta_prework(rows, delta.channels, delta.taps)
    return [
        product("recurrent queries, keys, values", 1, delta.channels, model.hidden),
        product("recurrent gate", 1, values, model.hidden),
        product("decay and rate", 2, delta.value_heads, model.hidden),
        product("recurrent output", 1, model.hidden, values),
        Part("gated_delta_prework", "projections", delta.layers, before),
        Part("gated_delta_verify", "state", delta.layers, state),
    ]


def draft_parts(model: Geometry, draft: DraftGeometry, length: int) -> list[Part]:
    """The operations of a draft pass, its head included."""
    rows, hidden = draft.block, model.hidden

    def product(what: str, times: int, outputs: int, inputs: int, m: int) -> Part:
        shape = (outputs, inputs, draft.bits, draft.group_size)
        return Part("qmm_rows", what, times, matrix(m, *shape), shape)

    size, keys = draft.heads * draft.width, draft.groups * draft.width
    corrections = 2 * draft.taps * hidden // draft.conv_group
    seen = min(length, draft.window) + rows
    conv = (rows, hidden, draft.taps, draft.conv_group)
    inside = (draft.intermediate, hidden, draft.bits, draft.group_size)
    outside = (model.vocab, hidden, model.bits, model.group_size)
    layers = draft.layers
    return [
        product("draft features", 1, hidden, draft.features * hidden, rows),
        product("draft context keys and values", 2 * layers, keys, hidden, rows),
        product("draft queries", layers, size, hidden, rows),
        product("draft keys and values", 2 * layers, keys, hidden, rows),
        product("draft attention output", layers, hidden, size, rows),
        product("draft corrections", 2 * layers, corrections, hidden, rows),
        Part(
            "gated_rows",
            "draft MLP gate and up",
            layers,
            gated(rows, *inside),
            inside,
        ),
        product("draft MLP down", layers, hidden, draft.intermediate, rows),
        Part(
            "attention_rows",
            "draft",
            layers,
            attention(rows, draft.heads, draft.groups, draft.width, seen),
        ),
        Part("conv_prepare", "draft", 2 * layers, convolution(*conv, finish=False)),
        Part("conv_finish", "draft", 2 * layers, convolution(*conv, finish=True)),
        Part("qmm_rows", "draft head", 1, matrix(rows - 1, *outside), outside),
        product("draft gates", 1, draft.rank, hidden, rows - 1),
        Part(
            "candidate_selector",
            "draft",
            1,
            selector(rows - 1, model.vocab, draft.count, draft.rank),
        ),
    ]


def total(parts: list[Part]) -> Work:
    """The work of all parts."""
    return sum((part.total for part in parts), Work())


def cycle_work(
    model: Geometry, draft: DraftGeometry | None, rows: int, length: int
) -> Work:
    """One cycle: a draft, where there is a drafter, and the pass that verifies it."""
    drafted = draft_parts(model, draft, length) if draft else []
    return total(drafted) + total(verify_parts(model, rows, length))
