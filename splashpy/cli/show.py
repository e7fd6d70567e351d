# SPDX-License-Identifier: Apache-2.0
"""``splashpy show``: what a model consists of, here or on the Hub."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from splashpy.cli.invocation import Invocation
from splashpy.cli.models import facts_of, moment, verdict_of
from splashpy.cli.options import COMMON
from splashpy.cli.page import Page, PageCommand
from splashpy.errors import ModelMissingError
from splashpy.units import format_bytes, format_tokens

if TYPE_CHECKING:
    from splashpy.package.model_directory import ModelDirectory
    from splashpy.package.published_drafters import TargetSizes


def show(invocation: Invocation) -> int:
    """Print what a model consists of, or what the Hub says where it is not here.

    Raises:
        SplashError: no such model, damaged, or not installed and not on the Hub.
    """
    from splashpy.package.library import Library
    from splashpy.package.model_directory import ModelDirectory

    name = invocation.given["model"]
    try:
        model = Library(invocation.paths).find(name)
    except ModelMissingError as missing:
        facts = _elsewhere(invocation, name, missing)
    else:
        facts = facts_of(model) | _directory_fields(ModelDirectory.open(model.path))
        verdict = verdict_of(model.path)
        facts["memory"] = verdict and asdict(verdict)
    if invocation.output.json:
        invocation.output.document("show", facts)
    elif invocation.output.quiet:
        invocation.output.result(str(facts["path"]))
    else:
        _tell(invocation, facts)
    return 0


def _elsewhere(
    invocation: Invocation, name: str, missing: ModelMissingError
) -> dict[str, Any]:
    """What the Hub says; raises ``missing`` where it is not asked."""
    from splashpy.cli.elsewhere import read, repository

    wish = repository(name)
    quiet = invocation.output.quiet and not invocation.output.json
    if wish is None or quiet or invocation.offline:
        raise missing
    facts, target = read(wish)
    invocation.output.note(f"{name} is not installed; splashpy pull {name}")
    return {**facts, "published_drafters": _drafters(target) if target else []}


def _tell(invocation: Invocation, facts: dict[str, Any]) -> None:
    """Every fact that is known, one on a line."""
    facts["size_bytes"] = format_bytes(facts["size_bytes"])
    if facts["context_max"]:
        facts["context_max"] = format_tokens(facts["context_max"])
    if "last_used" in facts:
        facts["last_used"] = moment(facts["last_used"])
    files, drafters = facts.pop("files"), facts.pop("published_drafters")
    memory = facts.pop("memory", None)
    width = max(map(len, facts))
    for name, value in facts.items():
        if value not in (None, "", {}):
            invocation.output.result(f"{name:<{width}}  {_spoken(value)}")
    for line in _memory_lines(memory):
        invocation.output.result(f"{'memory':<{width}}  {line}")
    for drafter in drafters:
        invocation.output.result(f"{'drafter':<{width}}  {drafter['about']}")
    for name, size in files.items():
        invocation.output.result(f"{'file':<{width}}  {format_bytes(size):>9}  {name}")


def _memory_lines(memory: dict[str, Any] | None) -> list[str]:
    """The memory plan: what some contexts need, of how much."""
    from splashpy.packing.memory_verdict import Share

    if memory is None:
        return []
    weights, budget = (
        format_bytes(memory[name]) for name in ("weights_bytes", "budget_bytes")
    )
    first = f"{memory['level']}: {weights} of weights; {budget} may be used"
    return [first, *(str(Share(**share)) for share in memory["shares"])]


def _directory_fields(directory: ModelDirectory) -> dict[str, Any]:
    """What the files of a model say, as JSON."""
    from splashpy.package.published_drafters import TargetSizes

    defaults = asdict(directory.sampling)
    set_here = {
        name: value
        for name, value in defaults.items()
        if value not in (None, ()) and value is not False
    }
    return {
        "layers": directory.num_layers,
        "hidden_size": directory.hidden_size,
        "vocabulary": directory.vocab_size,
        "target": str(directory.target),
        "draft": str(directory.draft) if directory.draft else None,
        "end_tokens": list(directory.eos_token_ids()),
        "packing": _packing(directory.config),
        "sampling_defaults": set_here,
        "published_drafters": _drafters(
            TargetSizes(
                directory.model_type,
                directory.hidden_size,
                directory.num_layers,
                directory.vocab_size,
            )
        ),
        "files": _files(directory.path),
    }


def _packing(config: dict[str, Any]) -> dict[str, Any]:
    """How the target's matrices are packed; empty when they are not."""
    packed = config.get("quantization")
    if not isinstance(packed, dict):
        return {}
    usual = {key: packed.get(key) for key in ("bits", "group_size", "mode")}
    others = Counter(
        f"{own.get('bits')} bits in groups of {own.get('group_size')}"
        for own in packed.values()
        if isinstance(own, dict)
    )
    return {**usual, **{f"modules with {how}": n for how, n in others.items()}}


def _drafters(target: TargetSizes) -> list[dict[str, Any]]:
    """Drafters published for a target of these sizes."""
    from splashpy.package.published_drafters import describe, find_drafters

    return [
        {
            "repo": drafter.repo or None,
            "made_for": drafter.made_for,
            "version": drafter.version,
            "licence": drafter.licence or None,
            "about": describe(drafter, target),
        }
        for drafter in find_drafters(target)
    ]


def _files(root: Path) -> dict[str, int]:
    """Files below a directory and their bytes, by relative name."""
    found = sorted(path for path in root.rglob("*") if path.is_file())
    return {str(path.relative_to(root)): path.stat().st_size for path in found}


def _spoken(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, dict):
        return ", ".join(f"{name} {item}" for name, item in value.items())
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return str(value)


SHOW = PageCommand(
    "show",
    page=Page(
        usage="MODEL",
        summary="Say what a model consists of, and which drafters fit it.",
        examples=(
            ("splashpy show demo", "files, sizes, context, sampling defaults"),
            ("splashpy show OWNER/REPO", "also before it is downloaded, from the Hub"),
            ("splashpy show demo -q", "its directory only"),
        ),
    ),
    arguments=(click.Argument(["model"], metavar="MODEL"),),
    options=COMMON,
    run=show,
)
