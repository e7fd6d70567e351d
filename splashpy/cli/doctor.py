# SPDX-License-Identifier: Apache-2.0
"""``splashpy doctor``: what this machine runs, and what its kernels are worth."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from splashpy.cli.invocation import Invocation
from splashpy.cli.options import COMMON
from splashpy.cli.page import Page, PageCommand
from splashpy.errors import UsageError

if TYPE_CHECKING:
    from splashpy.bench.kernels import Examination, Line

_HEADS = ("operation", "where", "MB", "GFLOP", "least", "kernel", "MLX", "verdict")


def doctor(invocation: Invocation) -> int:
    """Look at the machine; with --kernels, at every kernel.

    Raises:
        UsageError: --sustain without --kernels.
    """
    from splashpy.bench.kernels import examine, look

    given, output = invocation.given, invocation.output
    if given["sustain"] and not given["kernels"]:
        raise UsageError("--sustain goes with --kernels")
    if given["kernels"]:
        path = invocation.paths.cache / "kernels.json"
        found = examine(path, seconds=given["sustain"] or 0)
    else:
        found = look()
    if output.json:
        output.document("doctor", _fields(found))
        return 0
    for line in _about(found):
        output.result(line)
    if found.lines:
        output.result("")
        rows = [_row(line, found) for line in found.lines]
        output.table(_HEADS, rows, wide=True)
        output.result("")
        output.result(_cycle(found))
    return 0


def _about(found: Examination) -> list[str]:
    if not found.metal:
        kernels = "not used: there is no Metal GPU here, MLX computes everything"
    elif found.switch:
        kernels = f"SPLASHPY_KERNELS={found.switch}"
    else:
        kernels = "used where they win; --kernels tells where"
    return [
        f"device   {found.device}",
        f"mlx      {found.mlx}",
        f"BLAS     {found.blas}",
        f"kernels  {kernels}",
    ]


def _row(line: Line, found: Examination) -> tuple[str, ...]:
    verdict = line.verdict
    state = "no Metal" if not found.metal else "not tried"
    if verdict:
        share = line.share(found.chip)
        reached = f", {share:.0%} of the limit" if share else ""
        state = f"{verdict.state}{reached}" if not verdict.reason else verdict.reason
    return (
        line.operation,
        line.what,
        f"{line.work.bytes / 1e6:.2f}",
        f"{line.work.flops / 1e9:.2f}",
        _micro(found.limit.seconds(line.work)),
        _micro(verdict.kernel_seconds if verdict else 0),
        _micro(verdict.stock_seconds if verdict else 0),
        state,
    )


def _micro(seconds: float) -> str:
    return f"{seconds * 1e6:.1f} us" if seconds else "-"


def _cycle(found: Examination) -> str:
    work, chip = found.cycle, found.limit
    assert work is not None
    least = f"at least {chip.seconds(work) * 1e3:.1f} ms on {chip.name}"
    example = "" if found.chip else ", an example"
    return (
        f"one cycle of a Qwen3.8-27B pair in 4 bits: {work.bytes / 1e9:.2f} GB, "
        f"{work.flops / 1e9:.0f} GFLOP, {least}{example}"
    )


def _fields(found: Examination) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "device": found.device,
        "metal": found.metal,
        "chip": asdict(found.chip) if found.chip else None,
        "mlx": found.mlx,
        "blas": found.blas,
        "switch": found.switch,
    }
    if found.cycle:
        fields["limit"] = asdict(found.limit)
        fields["cycle"] = asdict(found.cycle)
        fields["kernels"] = [
            {
                "operation": line.operation,
                "where": line.what,
                **asdict(line.work),
                "least_seconds": found.limit.seconds(line.work),
                "share_of_limit": line.share(found.chip),
                "verdict": asdict(line.verdict) if line.verdict else None,
            }
            for line in found.lines
        ]
    return fields


DOCTOR = PageCommand(
    "doctor",
    page=Page(
        usage="",
        summary="Say what this machine computes with, and what its kernels are worth.",
        examples=(
            ("splashpy doctor", "device, MLX, BLAS, and whether kernels are used"),
            (
                "splashpy doctor --kernels",
                "compare every kernel with MLX and race it, as in a 27B pair",
            ),
            (
                "splashpy doctor --kernels --sustain 60 --json > report.json",
                "also run each for a minute; a report to attach to an issue",
            ),
        ),
        notes=(
            "A kernel runs only where it gave MLX's numbers and was faster, on this",
            "machine and at the shape in question. Verdicts are kept until the",
            "system, MLX or a kernel changes. MB and GFLOP are the least that an",
            "operation must move and compute; 'least' is the time that takes at the",
            "chip's own figures. SPLASHPY_KERNELS=off switches all kernels off,",
            "-NAME,-NAME single ones, NAME,NAME all others.",
        ),
    ),
    options=("kernels", "sustain", *COMMON),
    run=doctor,
)
