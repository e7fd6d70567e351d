# SPDX-License-Identifier: Apache-2.0
"""What the kernels are worth on this machine, for a model of any geometry.

No weights are needed: the contests run on random ones of the model's shapes. On a
machine without Metal nothing is run; what is left is how much every operation must move
and compute.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from time import perf_counter
from typing import Any

import mlx.core as mx

from splashpy import blas
from splashpy.engine.row_kernels import verdicts_on
from splashpy.host.device import device
from splashpy.kernels import contests, metal, verdicts
from splashpy.kernels.contest import Contest, Switch, Verdict, sustain
from splashpy.kernels.cycle_work import (
    DFLASH2_27B,
    QWEN38_27B,
    DraftGeometry,
    Geometry,
    Part,
    cycle_work,
    draft_parts,
    verify_parts,
)
from splashpy.kernels.roofline import Chip, Work, find_chip, share_of_limit
from splashpy.models.kernel_shapes import FEWEST_OUTPUTS

ROWS = 8
LENGTH = 4096
EXAMPLE = "M4 Pro"
"""Chip whose limit is shown where this machine's is not known."""


@dataclass(frozen=True, slots=True)
class Line:
    """One operation at one shape.

    Attributes:
        operation: its name.
        what: where it stands in a cycle.
        work: of one call.
        verdict: what came of its contest; None where none was run.
    """

    operation: str
    what: str
    work: Work
    verdict: Verdict | None

    def share(self, chip: Chip | None) -> float:
        """How much of the chip's limit the kernel reached; 0 where unknown."""
        measured = self.verdict.kernel_seconds if self.verdict else 0.0
        return share_of_limit(chip, self.work, measured) if chip else 0.0


@dataclass(frozen=True, slots=True)
class Examination:
    """What was found.

    Attributes:
        device: name of the device.
        metal: whether it runs Metal kernels.
        chip: its row of the table of chips; None where it has none.
        mlx: version of MLX.
        blas: what multiplies matrices on a CPU.
        switch: what ``SPLASHPY_KERNELS`` says.
        lines: of every operation.
        cycle: work of one cycle.
    """

    device: str
    metal: bool
    chip: Chip | None
    mlx: str
    blas: str
    switch: str
    lines: tuple[Line, ...] = ()
    cycle: Work | None = None

    @property
    def limit(self) -> Chip:
        """The chip whose limit is shown."""
        example = find_chip(EXAMPLE)
        assert example is not None
        return self.chip or example


def look() -> Examination:
    """This machine, without running anything."""
    found = device(str(blas.prepare()))
    return Examination(
        device=found.name,
        metal=metal.use_metal(),
        chip=find_chip(found.name, found.gpu_cores),
        mlx=version("mlx"),
        blas=found.blas,
        switch=metal.switch(),
    )


def examine(
    path: Path,
    model: Geometry = QWEN38_27B,
    draft: DraftGeometry | None = DFLASH2_27B,
    *,
    seconds: float = 0.0,
) -> Examination:
    """Every operation of a cycle, with its verdict where Metal can give one.

    Args:
        path: where verdicts are kept.
        model: the target.
        draft: its drafter; None without one.
        seconds: run every kernel that won for so long, and tell of a stall.
    """
    seen = look()
    parts = verify_parts(model, ROWS, LENGTH)
    parts += draft_parts(model, draft, LENGTH) if draft else []
    tried = _contests(model, draft, parts)
    found = _verdicts(tried, path, seconds) if seen.metal else {}
    lines = [
        Line(c.operation, what, c.work, found.get((c.operation, c.key)))
        for what, c in tried
    ]
    return Examination(
        seen.device,
        seen.metal,
        seen.chip,
        seen.mlx,
        seen.blas,
        seen.switch,
        tuple(lines),
        cycle_work(model, draft, ROWS, LENGTH),
    )


Labelled = tuple[str, Contest]


def _contests(
    model: Geometry, draft: DraftGeometry | None, parts: Sequence[Part]
) -> list[Labelled]:
    dtype = mx.bfloat16
    heads = (model.heads, model.groups, model.width)
    found: list[Labelled] = [
        *_matrices(parts, dtype),
        (
            f"over {LENGTH} keys",
            contests.attention(ROWS, heads, LENGTH, dtype),
        ),
        ("in 8 bits", contests.attention(ROWS, heads, LENGTH, dtype, packed=True)),
        ("stream", contests.add_norm(ROWS, model.hidden, dtype)),
        *(("target", c) for c in contests.target_choices(ROWS, model.vocab)),
        ("decision", contests.accept(ROWS - 1)),
    ]
    if model.delta:
        found += [("state", c) for c in contests.delta(ROWS, model.delta, dtype)]
    if draft:
        size = (draft.block, model.hidden, draft.taps, draft.conv_group)
        found += [("draft", c) for c in contests.convolutions(*size, dtype)]
        slots, vocab = draft.block - 1, model.vocab
        path = contests.choice(slots, vocab, vocab, draft.count, draft.rank)
        found.append(("draft", path))
    return found


def _matrices(parts: Sequence[Part], dtype: mx.Dtype) -> list[Labelled]:
    """A contest for every shape once, named after its first use."""
    makers = {"qmm_rows": contests.matrix, "gated_rows": contests.gated}
    found: dict[tuple[Any, ...], Labelled] = {}
    for part in parts:
        key = (part.kernel, *part.shape)
        if part.shape and part.shape[0] >= FEWEST_OUTPUTS and key not in found:
            outputs, inputs, bits, group = part.shape
            make = makers[part.kernel]
            contest = make(ROWS, outputs, inputs, bits, group, dtype)
            found[key] = (part.what, contest)
    return list(found.values())


def _verdicts(
    tried: Sequence[Labelled], path: Path, seconds: float
) -> dict[tuple[str, Any], Verdict]:
    switch = Switch.parse(metal.switch())
    found = verdicts_on([contest for _, contest in tried], path, switch)
    by_key = {(v.operation, v.key): v for v in found}
    if not seconds:
        return by_key
    stalls = {}
    for _, contest in tried:
        key = (contest.operation, contest.key)
        won = key in by_key and by_key[key].state == "on"
        stall = sustain(contest, seconds, perf_counter) if won else ""
        if stall:
            stalls[key] = Verdict(*key, "stalls", stall)
    if stalls:
        by_key |= stalls
        verdicts.write(path, verdicts.machine(), list(by_key.values()))
    return by_key
