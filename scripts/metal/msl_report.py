# SPDX-License-Identifier: Apache-2.0
"""Every Metal kernel on the emulator, checked, as tables; then every planted bug.

A row is one operation in one type. ``memory`` counts the findings of the emulator
(bounds, races, barriers, unwritten outputs, launches) over several orders of lanes;
``error`` is the largest difference from plain MLX in float32 over all of them and over
three orders of reduction; ``limits`` are pipelines that allow few threads; ``traffic``
is what moves between memory and a cache of 64 KiB, relative to every input and output
once. A second table has every operation at 1 to 17 rows; a number of rows that a kernel
is not made for is left to MLX. Ends with 1 where a check fails.
"""

from __future__ import annotations

import argparse
import re
import sys
import time
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))

import mlx.core as mx  # noqa: E402
from kernels.suite import BUILDERS, MOST_TRAFFIC, all_contests, run  # noqa: E402
from msl.emulator import REDUCTIONS, Emulation, KernelFault  # noqa: E402
from msl.lint import lint  # noqa: E402
from msl.seeded_bugs import BUGS  # noqa: E402
from msl.stand_in import StandIn, emulated  # noqa: E402

from splashpy.kernels import metal  # noqa: E402
from splashpy.kernels.contest import Contest  # noqa: E402

LIMITS = (832, 448, 384, 96)
ALLOWED = {mx.float32: 1e-4, mx.float16: 2e-3, mx.bfloat16: 1e-2}
"""Largest error: a few roundings, of results as large as the inputs."""
HEADS = ("operation", "type", "memory", "error", "limits", "traffic", "launches", "")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=6, help="orders of lanes")
    given = parser.parse_args(arguments)
    sound = _kernels(given.seeds)
    sound &= _every_number_of_rows()
    sound &= _text()
    sound &= _bugs()
    return 0 if sound else 1


def _kernels(seeds: int) -> bool:
    rows, sound = [], True
    with emulated() as device:
        for contest, dtype in all_contests([mx.float32, mx.bfloat16, mx.float16]):
            row, passed = _kernel(device, contest, dtype, seeds)
            rows.append(row)
            sound &= passed
    _table(HEADS, rows)
    return sound


def _kernel(
    device: StandIn, contest: Contest, dtype: mx.Dtype, seeds: int
) -> tuple[list[str], bool]:
    started = time.perf_counter()
    findings, errors, traffic, launches = 0, [0.0], 0.0, 0
    for seed in range(seeds):
        reduction = REDUCTIONS[seed % len(REDUCTIONS)]
        try:
            outcome = run(contest, device, Emulation(seed=seed, reduction=reduction))
        except KernelFault as fault:
            findings += len(fault.findings)
            print(fault, file=sys.stderr)
            continue
        errors.append(outcome.error)
        traffic, launches = outcome.traffic, len(device.reports)
    limited = [limit for limit in LIMITS if _fits(device, contest, limit)]
    error = max(errors)
    counted = f"{traffic:.3f}" if dtype.size == 2 or _integral(contest) else "-"
    passed = (
        findings == 0
        and error <= (0 if contest.tolerance == 0 else ALLOWED[dtype])
        and len(limited) == len(LIMITS)
        and (counted == "-" or traffic <= MOST_TRAFFIC)
    )
    return [
        contest.operation,
        str(dtype).removeprefix("mlx.core."),
        f"{findings} findings in {seeds} orders",
        f"{error:.1e}",
        " ".join(map(str, limited)),
        counted,
        str(launches),
        f"{'pass' if passed else 'FAIL'} {time.perf_counter() - started:.1f} s",
    ], passed


def _every_number_of_rows() -> bool:
    rows, sound = [], True
    counts = range(1, 18)
    with emulated() as device:
        for name, (_, build) in BUILDERS.items():
            for dtype in (mx.float32, mx.bfloat16):
                cells = [_cell(device, build(dtype, count), dtype) for count in counts]
                sound &= "F" not in cells
                rows.append([name, str(dtype).removeprefix("mlx.core."), *cells])
    print("\nrows: k by a kernel, m by MLX, F a failure")
    _table(("operation", "type", *map(str, counts)), rows)
    return sound


def _cell(device: StandIn, contests: Sequence[Contest], dtype: mx.Dtype) -> str:
    launched = False
    for seed, contest in enumerate(contests):
        try:
            outcome = run(contest, device, Emulation(seed=seed))
        except KernelFault as fault:
            print(fault, file=sys.stderr)
            return "F"
        if device.reports and outcome.error > ALLOWED[dtype]:
            return "F"
        launched |= bool(device.reports)
    return "k" if launched else "m"


def _integral(contest: Contest) -> bool:
    """Whether its inputs are logits or tokens, of one type always."""
    return contest.operation in (
        *("candidate_selector", "top_tokens", "target_topk", "accept"),
    )


def _fits(device: StandIn, contest: Contest, limit: int) -> bool:
    """Whether the operation runs where a pipeline allows ``limit`` threads."""
    before = dict(metal._limits)
    for kernel in contest.kernels:
        metal.limit_threads(kernel, limit)
    try:
        run(contest, device, Emulation(thread_limit=limit))
    except KernelFault as fault:
        print(fault, file=sys.stderr)
        return False
    finally:
        metal._limits.clear()
        metal._limits.update(before)
    return True


def _text() -> bool:
    """The static checks on every file."""
    remarks = {name: lint("", text) for name, text in metal.sources().items()}
    print()
    for name, found in remarks.items():
        told = "; ".join(f"line {r.line}: {r.text}" for r in found) or "no remarks"
        print(f"{name}.metal: {told}")
    return not any(remarks.values())


def _bugs() -> bool:
    rows, sound = [], True
    for name, bug in BUGS.items():
        caught = 0
        for seed in range(3):
            report = bug.planted().launch(Emulation(seed=seed, step_limit=200_000))
            told = [f for f in report.findings if f.kind in bug.kinds]
            caught += any(re.search(bug.says, f.text) for f in told)
        sound &= caught == 3
        kinds = ", ".join(sorted(bug.kinds))
        rows.append([name, kinds, "caught" if caught == 3 else "MISSED"])
    print()
    _table(("planted bug", "finding", ""), rows)
    return sound


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    widths = [max(map(len, column)) for column in zip(heads, *rows, strict=True)]
    for row in (heads, *rows):
        cells = zip(row, widths, strict=True)
        print("  ".join(cell.ljust(width) for cell, width in cells).rstrip())


if __name__ == "__main__":
    sys.exit(main())
