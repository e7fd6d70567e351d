# SPDX-License-Identifier: Apache-2.0
"""Choose the kernels of a loaded model.

On a machine with Metal every kernel the model could use is compared with plain MLX and
raced against it, once per machine; what wins runs. Then the model itself is asked: a
pass with kernels must say what one without says. Whatever fails, the model runs as
plain MLX.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from time import perf_counter
from typing import Any

import mlx.core as mx

from splashpy.kernels import gate, metal, verdicts
from splashpy.kernels.contest import (
    Contest,
    Switch,
    Verdict,
    judge,
    limit_threads,
    rule,
)
from splashpy.models.dflash2 import DFlashNetwork
from splashpy.models.kernel_shapes import draft_contests, target_contests
from splashpy.models.row_layers import use_row_kernels
from splashpy.models.target import MlxLmTarget
from splashpy.paths import Paths

ROWS = (4, 8, 16)
"""Rows of the passes that are tried; a verdict holds for fewer, down to the next."""

NO_MATRIX_UNITS = 17
"""From this generation on, kernels on simdgroup matrices run only where asked for: a
long answer stalled with them, though short ones were fine."""

# Of the largest logit: kernels round in other places than MLX does.
_TOLERANCE = 0.05


def may_run() -> bool:
    """Whether there is a GPU for kernels, and they are not switched off."""
    return metal.use_metal() and not Switch.parse(metal.switch()).off


def choose_kernels(target: MlxLmTarget, network: DFlashNetwork | None) -> None:
    """Let a target and its drafter run the kernels that win here."""
    switch = Switch.parse(metal.switch())
    if not may_run():
        return
    wanted = target_contests(target, ROWS)
    if network is not None:
        rows = network.config.block_size
        wanted = [*wanted, *draft_contests(network, rows)]
    found = verdicts_on(wanted, Paths.default().cache / "kernels.json", switch)
    before = _logits(target)
    gate.set_rule(rule(found, switch))
    target.use_row_kernels()
    if network is not None:
        use_row_kernels(network)
    if not _agrees(target, before):
        gate.set_rule(None)


def verdicts_on(
    contests: Sequence[Contest], path: Path, switch: Switch
) -> list[Verdict]:
    """The verdicts on contests: those kept for this machine, and new ones.

    Operations that must not run here have none, whatever was found once.
    """
    of = verdicts.machine()
    known = verdicts.read(path, of)
    left_out = {c.operation for c in contests if not _structural(c, switch)}
    missing = verdicts.missing(contests, known)
    missing = [contest for contest in missing if contest.operation not in left_out]
    for contest in contests:
        kept = known.get((contest.operation, contest.key))
        if kept and kept.threads:
            limit_threads(contest, kept.threads)
    for contest in missing:
        known[contest.operation, contest.key] = judge(contest, perf_counter)
        mx.clear_cache()
    if missing:
        verdicts.write(path, of, list(known.values()))
    return [v for v in known.values() if v.operation not in left_out]


def generation(architecture: str) -> int:
    """Of a GPU, from ``applegpu_g15s``; 0 where it does not say."""
    digits = architecture.removeprefix("applegpu_g").rstrip("gpsdc")
    return int(digits) if digits.isdigit() else 0


def _structural(contest: Contest, switch: Switch) -> bool:
    """Whether a contest is worth running on this device at all."""
    if not switch.allows(contest.operation):
        return False
    if not contest.matrix_units or contest.operation in switch.only:
        return True
    architecture = str(mx.device_info().get("architecture", ""))
    return generation(architecture) < NO_MATRIX_UNITS


def _logits(target: MlxLmTarget) -> mx.array:
    ids = mx.arange(ROWS[1]) % target.facts.vocab_size
    logits = target.forward(target.new_state(ROWS[1]), ids, rows=ROWS[1]).logits
    mx.eval(logits)
    return logits


def _agrees(target: MlxLmTarget, before: mx.array) -> bool:
    try:
        after = _logits(target)
    except (RuntimeError, ValueError):
        return False
    gap: Any = (mx.abs(after - before).max() / mx.abs(before).max()).item()
    return gap <= _TOLERANCE
