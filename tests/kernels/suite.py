# SPDX-License-Identifier: Apache-2.0
"""Every operation at a shape that the emulator runs in a moment.

The shapes are small for a device, but their matrices, keys and logits are larger than
the cache that traffic is counted with, so whatever is read twice is counted twice.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any

import mlx.core as mx
from msl.emulator import Emulation
from msl.stand_in import StandIn

from splashpy.kernels import (
    accept,
    add_rms_norm,
    attention_rows,
    candidate_selector,
    contests,
    dynamic_causal_conv,
    gate,
    gated_delta,
    metal,
    qmm_rows,
    target_topk,
    top_tokens,
)
from splashpy.kernels.contest import Contest
from splashpy.kernels.roofline import Delta

_ROOMS = (
    *(accept, add_rms_norm, attention_rows, candidate_selector, dynamic_causal_conv),
    *(gated_delta, qmm_rows, target_topk, top_tokens),
)
KERNELS = {
    kernel.name: kernel
    for module in _ROOMS
    for kernel in vars(module).values()
    if isinstance(kernel, metal.Kernel)
}
"""Every kernel, by name."""

CACHE_BYTES = 64 << 10
MOST_TRAFFIC = 1.10
"""Bytes moved, relative to every input and every output once."""

_HEADS = (2, 1, 64)
_DELTA = Delta(
    layers=1, key_heads=1, value_heads=4, key_width=128, value_width=64, taps=4
)
Build = Callable[[mx.Dtype, int], Sequence[Contest]]

BUILDERS: dict[str, tuple[int, Build]] = {
    "qmm_rows 4 bits": (8, lambda t, m: [contests.matrix(m, 256, 1024, 4, 64, t)]),
    "qmm_rows 8 bits": (12, lambda t, m: [contests.matrix(m, 128, 1024, 8, 32, t)]),
    "gated_rows": (8, lambda t, m: [contests.gated(m, 128, 1024, 4, 128, t)]),
    "attention_rows": (
        4,
        lambda t, m: [contests.attention(m, _HEADS, 760, t)],
    ),
    "attention_rows_q8": (
        4,
        lambda t, m: [contests.attention(m, _HEADS, 760, t, packed=True)],
    ),
    "add_rms_norm": (8, lambda t, m: [contests.add_norm(m, 1000, t)]),
    "conv": (8, lambda t, m: contests.convolutions(m, 1024, 2, 16, t)),
    "gated_delta": (8, lambda t, m: contests.delta(m, _DELTA, t)),
}
"""Operations whose inputs are activations of any type: usual rows, and the contests."""

LOGITS: dict[str, Callable[[], Sequence[Contest]]] = {
    "candidate_selector": lambda: [contests.choice(2, 32_768, 32_768, 16, 64)],
    "target's choices": lambda: contests.target_choices(1, 65_536),
    "accept": lambda: [contests.accept(7)],
}
"""Operations on float32 logits, or on tokens."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one contest gave on the emulator.

    Attributes:
        error: largest difference from plain MLX in float32, relative to the largest
            number; 0 or 1 for integers.
        moved: bytes between memory and the cache.
        least: bytes of every input and every output.
    """

    error: float
    moved: int
    least: int

    @property
    def traffic(self) -> float:
        """Moved, relative to the least."""
        return self.moved / self.least


def all_contests(dtypes: Sequence[mx.Dtype]) -> list[tuple[Contest, mx.Dtype]]:
    """Every contest in every type it has."""
    found = [
        (contest, dtype)
        for rows, build in BUILDERS.values()
        for dtype in dtypes
        for contest in build(dtype, rows)
    ]
    return found + [(c, mx.float32) for build in LOGITS.values() for c in build()]


def run(contest: Contest, device: StandIn, emulation: Emulation) -> Outcome:
    """Run the kernels of a contest once; raises for every finding."""
    (arguments, *_) = contest.sets()
    device.reports.clear()
    device.emulation = replace(emulation, cache_bytes=CACHE_BYTES)
    ours = contest.call(*arguments)
    with gate.ruled(None):
        theirs = contest.call(*(in_float32(part) for part in arguments))
    error = max(_error(a, b) for a, b in zip(ours, theirs, strict=True))
    return Outcome(error, device.moved(), contest.work.bytes)


def in_float32(value: Any) -> Any:
    """Arguments with every array of floats in float32."""
    if isinstance(value, mx.array):
        floating = mx.issubdtype(value.dtype, mx.floating)
        return value.astype(mx.float32) if floating else value
    if is_dataclass(value) and not isinstance(value, type):
        parts = {f.name: in_float32(getattr(value, f.name)) for f in fields(value)}
        return replace(value, **parts)
    return value


def _error(ours: mx.array, theirs: mx.array) -> float:
    if not mx.issubdtype(ours.dtype, mx.floating):
        return 0.0 if mx.array_equal(ours, theirs) else 1.0
    ours = ours.astype(mx.float32)
    return (mx.abs(ours - theirs).max() / mx.abs(theirs).max()).item()
