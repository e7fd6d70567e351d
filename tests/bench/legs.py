# SPDX-License-Identifier: Apache-2.0
"""Legs as a measurement leaves them, with rates a test chooses."""

from __future__ import annotations

from typing import Any

from splashpy.bench.document import summarize
from splashpy.bench.leg import Leg

SETTINGS: dict[str, Any] = {
    "model": "tiny",
    "suites": ["quick"],
    "number": None,
    "contexts": None,
    "arms": ["draft", "plain"],
    "trials": 2,
    "max_tokens": 101,
    "sampling": {},
}
MACHINE = {"machine": "a machine", "blas": "reference"}


def leg(arm: str, rate: float, **changes: Any) -> Leg:
    """101 tokens, of which 100 count, at ``rate`` tokens a second."""
    drafted = arm == "draft"
    values: dict[str, Any] = {
        "suite": "quick",
        "prompt": "0",
        "kind": "chat",
        "trial": 0,
        "arm": arm,
        "prompt_tokens": 50,
        "completion_tokens": 101,
        "prefill_seconds": 0.5,
        "decode_seconds": 100 / rate,
        "host_seconds": 0.1,
        "peak_bytes": 1_000_000,
        "cycles": 50 if drafted else 100,
        "drafted": 80 if drafted else 0,
        "accepted": 50 if drafted else 0,
        "committed": (10, 30, 10) if drafted else (100,),
        "kept": {0: 10, 1: 30, 2: 10} if drafted else {},
        "drafted_per_position": (50, 30) if drafted else (),
        "accepted_per_position": (40, 10) if drafted else (),
        "outcome": "identical" if drafted else "",
    }
    return Leg(**{**values, **changes})


def document(speed: float, **changes: Any) -> dict[str, Any]:
    """Two prompts, two trials, drafts ``speed`` times as fast as 10 tokens a second."""
    legs = [
        leg(arm, rate, prompt=prompt, trial=trial)
        for trial in range(2)
        for prompt in ("0", "1")
        for arm, rate in (("draft", 10 * speed), ("plain", 10.0))
    ]
    values: dict[str, Any] = {
        "settings": SETTINGS,
        "environment": MACHINE,
        "complete": True,
        **changes,
    }
    return summarize(legs, **values)
