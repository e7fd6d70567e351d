# SPDX-License-Identifier: Apache-2.0
"""Run random requests at a time and compare each with the same request alone.

Two tiny random pairs, a dense target and a hybrid one, each with half of the requests.
Lengths, samplers, seeds, grammars, shared beginnings, cancels and moments without
memory are drawn. Every text must be that of its solo run, and memory must not grow.

Then an engine process is killed three times under a tenth as many requests: what was
sent must be right, and what ends well whole.

Run it with SPLASHPY_BLAS=reference: only there are the rows of a pass the same bit for
bit however many they are.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from dataclasses import asdict
from pathlib import Path

import measure
import tiny
from soak_kills import Killed, soak_with_kills
from soak_requests import soak

ALLOWED_BYTES = 1 << 20
KILLS = 3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="one JSON document")
    parser.add_argument("--requests", type=int, default=500, help="[%(default)s]")
    parser.add_argument("--seed", type=int, default=1, help="[%(default)s]")
    options = parser.parse_args()
    found = {}
    with tempfile.TemporaryDirectory() as scratch:
        for family in ("llama", "qwen3_5"):
            model = tiny.write_model(Path(scratch) / family, family)
            draft = tiny.write_drafter(Path(scratch) / f"{family}-draft")
            count = options.requests // 2
            report = soak(model, draft, count=count, seed=options.seed)
            found[family] = {**asdict(report), "grown": report.grown}
            wrong, grown = len(report.wrong), report.grown
            measure.note(
                f"{family}: {report.asked} requests, {sum(report.cancelled.values())} "
                f"cancelled, {report.aside} times one was set aside, {wrong} wrong, "
                f"{grown} bytes grown"
            )
        killed = _with_kills(Path(scratch), options.requests // 10, options.seed)
    if options.json:
        document = {"schema": "splashpy.soak/1", **found, "killed": asdict(killed)}
        print(json.dumps(document, indent=2))
    grown = any(each["grown"] > ALLOWED_BYTES for each in found.values())
    if grown or killed.wrong or any(each["wrong"] for each in found.values()):
        raise SystemExit("error: a text is wrong, or memory grows")


def _with_kills(scratch: Path, count: int, seed: int) -> Killed:
    """Uses the dense pair."""
    killed = soak_with_kills(
        scratch / "llama",
        scratch / "llama-draft",
        scratch / "engine.log",
        count=count,
        kills=KILLS,
        seed=seed,
    )
    measure.note(
        f"killed: {killed.deaths} engines under {count} requests, {killed.replayed} "
        f"began anew, {len(killed.wrong)} wrong"
    )
    return killed


if __name__ == "__main__":
    main()
