# SPDX-License-Identifier: Apache-2.0
"""What every benchmark here does the same way.

A figure is a ratio of two arms that ran interleaved (A-B-B-A) in one process on the
same work: the machine may be shared and noisy. Medians are reported, with the spread
(half the distance between the quartiles, as a fraction of the median) beside them.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from statistics import median, quantiles
from typing import Any

from splashpy import blas

blas.prepare()  # before a benchmark imports mlx


def arguments(purpose: str, *, rounds: int) -> argparse.Namespace:
    """The options every benchmark takes, read."""
    return options(purpose, rounds=rounds).parse_args()


def options(purpose: str, *, rounds: int) -> argparse.ArgumentParser:
    """Options every benchmark takes."""
    parser = argparse.ArgumentParser(description=purpose)
    parser.add_argument("--json", action="store_true", help="one JSON document")
    parser.add_argument(
        "--rounds", type=int, default=rounds, help="A-B-B-A rounds [%(default)s]"
    )
    return parser


def interleave(
    arms: Mapping[str, Callable[[], dict[str, float]]], rounds: int
) -> dict[str, list[dict[str, float]]]:
    """Run every arm twice a round, forwards then backwards; one warm-up of each first.

    Returns:
        The samples of each arm, in the order they were taken.
    """
    samples: dict[str, list[dict[str, float]]] = {name: [] for name in arms}
    for run in arms.values():
        run()
    for number in range(rounds):
        for name in (*arms, *reversed(list(arms))):
            samples[name].append(arms[name]())
        note(f"round {number + 1} of {rounds}")
    return samples


def note(text: str) -> None:
    """Progress goes to stderr."""
    print(text, file=sys.stderr, flush=True)


def summary(samples: Sequence[dict[str, float]], key: str) -> dict[str, float]:
    """Median and spread of one measure."""
    values = [sample[key] for sample in samples]
    middle = median(values)
    low, _, high = quantiles(values, n=4) if len(values) > 1 else (middle,) * 3
    return {"median": middle, "spread": (high - low) / 2 / middle if middle else 0.0}


def environment() -> dict[str, str]:
    """Where and with what the figures were made."""
    from splashpy.bench.environment import environment as facts  # noqa: PLC0415

    return {
        **facts(datetime.now(UTC).date().isoformat()),
        "commit": commit(),
        "command": " ".join([Path(sys.argv[0]).stem, *sys.argv[1:]]),
    }


def commit() -> str:
    """Commit the figures belong to; ``+`` when files were changed since."""
    root = Path(__file__).parents[2]

    def git(*words: str) -> str:
        run = subprocess.run(
            ["git", *words], cwd=root, capture_output=True, text=True, check=False
        )
        return run.stdout.strip()

    return git("rev-parse", "--short", "HEAD") + ("+" if git("status", "-s") else "")


def report(
    document: dict[str, Any], rows: Sequence[Sequence[str]], *, as_json: bool
) -> None:
    """Print the document, or its table with the environment above it."""
    document = {**document, "environment": environment()}
    if as_json:
        print(json.dumps(document, indent=2))
        return
    for key, value in document["environment"].items():
        print(f"{key:10} {value}")
    print()
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    for row in rows:
        print(
            "  ".join(
                cell.ljust(width) for cell, width in zip(row, widths, strict=True)
            )
        )


def row(name: str, figure: dict[str, float], unit: str) -> list[str]:
    """A table row of one summary."""
    return [name, f"{figure['median']:.1f} {unit}", f"±{100 * figure['spread']:.0f} %"]
