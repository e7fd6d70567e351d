# SPDX-License-Identifier: Apache-2.0
"""``splashpy doctor``: is this machine ready, and what are its kernels worth."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from splashpy.cli.invocation import Invocation
from splashpy.cli.options import COMMON, ENGINE
from splashpy.cli.page import Page, PageCommand
from splashpy.errors import UsageError
from splashpy.units import format_bytes, format_tokens

if TYPE_CHECKING:
    from splashpy.bench.health import Trial
    from splashpy.bench.kernels import Examination, Line
    from splashpy.cli.health import Check
    from splashpy.engine.timing import Timed
    from splashpy.protocol import Ledger

_HEADS = ("operation", "where", "MB", "GFLOP", "least", "kernel", "MLX", "verdict")


def doctor(invocation: Invocation) -> int:
    """Look at the machine; with --kernels, at every kernel; with --load, at a model.

    Returns:
        0; 1 where a check failed, with --strict also where one warns.

    Raises:
        UsageError: --sustain without --kernels.
        SplashError: the model of --load cannot be had.
    """
    from splashpy.bench.kernels import examine, look
    from splashpy.cli.health import counts, look_around

    given, output = invocation.given, invocation.output
    if given["sustain"] and not given["kernels"]:
        raise UsageError("--sustain goes with --kernels")
    if given["kernels"]:
        path = invocation.paths.cache / "kernels.json"
        found = examine(path, seconds=given["sustain"] or 0)
    else:
        found = look()
    checks = look_around(invocation)
    trial = _try_out(invocation) if given["load"] else None
    number = counts(checks)
    bad = number["fail"] + (number["warn"] if given["strict"] else 0)
    if output.json:
        fields = {
            **_fields(found),
            "checks": [asdict(check) for check in checks],
            "load": trial and _trial_fields(trial),
        }
        output.document("doctor", fields)
        return 1 if bad else 0
    for line in _about(found):
        output.result(line)
    for line in (*_check_lines(checks), *_trial_lines(trial)):
        output.result(line)
    if found.lines:
        output.result("")
        rows = [_row(line, found) for line in found.lines]
        output.table(_HEADS, rows, wide=True)
        output.result("")
        output.result(_cycle(found))
    return 1 if bad else 0


def _check_lines(checks: Sequence[Check]) -> list[str]:
    lines = [""]
    width = max(len(check.name) for check in checks)
    for check in checks:
        lines.append(f"{check.state:<4}  {check.name:<{width}}  {check.found}")
        if check.fix:
            lines.append(f"{'':<4}  {'':<{width}}  fix: {check.fix}")
    return lines


def _try_out(invocation: Invocation) -> Trial:
    from splashpy.bench.health import try_out
    from splashpy.cli.resolve import find_or_build
    from splashpy.cli.signals import Interrupts
    from splashpy.package.model_directory import ModelDirectory

    with Interrupts(invocation.output.err) as interrupts:
        found = find_or_build(invocation, invocation.given["load"], interrupts)
        progress = invocation.progress()
        try:
            trial = try_out(
                ModelDirectory.open(found.path),
                invocation.load_options(),
                interrupts.checked(progress.update),
            )
        finally:
            progress.close()
        interrupts.check()
        return trial


def _trial_lines(trial: Trial | None) -> list[str]:
    if trial is None:
        return []
    rate = (trial.tokens - 1) / trial.decode_seconds if trial.decode_seconds else 0.0
    draft = trial.draft
    reason = f": {draft.reason}" if draft.reason else ""
    lines = [
        "",
        f"loaded   in {trial.load_seconds:.1f} s; draft {draft.state}{reason}",
        f"answered {trial.tokens} tokens, the first after "
        f"{trial.first_seconds:.2f} s, then {rate:.1f} tok/s, τ {trial.tau:.2f}",
    ]
    if trial.plan:
        plan = trial.plan
        lines.append(
            f"memory   {format_bytes(plan.total)} with "
            f"{format_tokens(plan.context)} tokens of context in {plan.kv}, of "
            f"{format_bytes(plan.budget)}; {format_bytes(trial.peak_bytes)} held by MLX"
        )
        lines.append(f"ledger   {_claims(trial.ledger)}")
    if trial.wired:
        lines.append(f"wired    {trial.wired}")
    if trial.costs and trial.costs.passes:
        passes = ", ".join(f"{n} rows {cost:.2f}" for n, cost in trial.costs.passes)
        lines.append(
            f"costs    a plain step {1e3 * trial.costs.plain_seconds:.1f} ms; in plain "
            f"steps: a pass of {passes}; a draft {trial.costs.draft:.2f}"
        )
        lines += _origin_lines(trial.timed)
    return lines


def _origin_lines(timed: Timed) -> Iterator[str]:
    """Where the costs are from."""
    yield f"timed    {', '.join(timed.measured)}; in {timed.seconds:.1f} s"
    if timed.kept:
        yield f"kept     {', '.join(timed.kept)}"
    if timed.trouble:
        yield f"         {timed.trouble}, so nothing kept was used"


def _claims(ledger: Ledger) -> str:
    """Who has claims on the memory, and whether somebody was refused."""
    held = {name: size for name, size in asdict(ledger.held).items() if size}
    claims = ", ".join(f"{name} {format_bytes(size)}" for name, size in held.items())
    free = format_bytes(max(ledger.budget - sum(held.values()), 0))
    refused = f"; refused: {ledger.refusal}" if ledger.refused else "; nothing refused"
    return f"{claims}; {free} free{refused}"


def _trial_fields(trial: Trial) -> dict[str, Any]:
    fields = asdict(trial)
    if trial.plan:
        fields["plan"]["total"] = trial.plan.total
    return fields


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
        summary="Say whether this machine is ready, and what its kernels are worth.",
        examples=(
            ("splashpy doctor", "device, MLX, memory, disk, models, port, terminal"),
            (
                "splashpy doctor --load demo",
                "load it, time its cycles again, let it write sixteen tokens",
            ),
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
            "What cycles of a model cost is measured at its first start and kept;",
            "--load measures it again. Exit codes: 0, or 1 where a check fails,",
            "with --strict also where one warns.",
        ),
    ),
    options=("load", "strict", "kernels", "sustain", *ENGINE, *COMMON),
    run=doctor,
)
