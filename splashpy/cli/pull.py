# SPDX-License-Identifier: Apache-2.0
"""``splashpy pull``: fetch and build models, after saying what that takes."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from splashpy.cli.invocation import Invocation
from splashpy.cli.models import MODELS
from splashpy.cli.options import COMMON
from splashpy.cli.page import Page, PageCommand
from splashpy.cli.questions import confirm
from splashpy.cli.signals import Interrupts
from splashpy.units import format_bytes

if TYPE_CHECKING:
    from splashpy.packing.pull import PullPlan

ASK_ABOVE_BYTES = 1_000_000_000  # a smaller download is not worth a question


def pull(invocation: Invocation) -> int:
    """Fetch and build each model; its directory goes to stdout.

    Raises:
        SplashError: a model cannot be had.
        KeyboardInterrupt: stopped; a rerun goes on from there.
    """
    from splashpy.cli.resolve import build
    from splashpy.packing.pull import plan

    given = invocation.given
    vision = given["with_vision"]
    done: list[dict[str, Any]] = []
    for name in given["models"]:
        planned = plan(
            name, invocation.paths, offline=invocation.offline, vision=vision
        )
        if not _agreed(invocation, planned):
            continue
        if given["dry_run"]:
            path = planned.destination
        else:
            with Interrupts(invocation.output.err) as interrupts:
                path = build(
                    *(invocation, name, interrupts),
                    force=given["force"],
                    vision=vision,
                )
        done.append(
            {
                "name": name,
                "path": str(path),
                "revision": planned.revision,
                "memory": planned.memory and asdict(planned.memory),
                "drafters": [asdict(drafter) for drafter in planned.drafters],
            }
        )
        if not invocation.output.json:
            invocation.output.result(str(path))
    if invocation.output.json:
        invocation.output.document("pull", {"models": done})
    return 0 if len(done) == len(given["models"]) else 1


def _agreed(invocation: Invocation, planned: PullPlan) -> bool:
    """Say what will be moved; ask when it is much."""
    output = invocation.output
    if planned.installed and not invocation.given["force"]:
        return True
    licences = ", ".join(f"{part} {name}" for part, name in planned.licenses)
    output.note(
        f"{planned.name}: {format_bytes(planned.download_bytes)} to download, "
        f"{format_bytes(planned.free_bytes)} free"
        + (f"; licences: {licences}" if licences else "")
    )
    memory = planned.memory
    if memory:
        output.note(str(memory))
    for drafter in planned.drafters:
        output.note(f"drafter that may fit: {drafter.repo or drafter.made_for}")
    small = planned.download_bytes <= ASK_ABOVE_BYTES
    too_large = memory is not None and memory.level == "does not fit"
    if invocation.given["dry_run"] or (small and not too_large):
        return True
    size = format_bytes(planned.download_bytes)
    question = f"Download {size} for {planned.name}"
    if too_large:
        question += ", although it does not fit in memory"
    return confirm(invocation, f"{question}?")


PULL = PageCommand(
    "pull",
    page=Page(
        usage="MODEL...",
        summary="Fetch and build models; print where each one is.",
        examples=(
            ("splashpy pull demo", "the small demonstration model, 93 MB"),
            (
                "splashpy pull mlx-community/Qwen3-0.6B-4bit --dry-run",
                "what it would move, and where to",
            ),
        ),
        notes=(
            "Ctrl-C keeps what was transferred; the same command goes on from there.",
        ),
    ),
    arguments=(MODELS,),
    options=("dry_run", "force", "with_vision", *COMMON),
    run=pull,
)
