# SPDX-License-Identifier: Apache-2.0
"""``pull``, ``list``, ``show`` and ``rm``: the models on this machine."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from splashpy.cli.invocation import Invocation
from splashpy.cli.options import COMMON
from splashpy.cli.page import Page, PageCommand
from splashpy.cli.questions import confirm
from splashpy.cli.signals import Interrupts
from splashpy.errors import ModelMissingError
from splashpy.units import format_bytes, format_tokens

if TYPE_CHECKING:
    from splashpy.package.library import InstalledModel, Library
    from splashpy.package.model_directory import ModelDirectory
    from splashpy.package.published_drafters import TargetSizes
    from splashpy.packing.memory_verdict import MemoryVerdict
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
    done: list[dict[str, Any]] = []
    for name in given["models"]:
        planned = plan(name, invocation.paths, offline=invocation.offline)
        if not _agreed(invocation, planned):
            continue
        if given["dry_run"]:
            path = planned.destination
        else:
            with Interrupts(invocation.output.err) as interrupts:
                path = build(invocation, name, interrupts, force=given["force"])
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


def list_models(invocation: Invocation) -> int:
    """Print the installed models; with --all also those that can be pulled."""
    from splashpy.package.library import Library
    from splashpy.package.names import KNOWN

    given = invocation.given
    installed = Library(invocation.paths).installed()
    names = {model.name for model in installed}
    missing = [known for known in KNOWN if given["all"] and known.name not in names]
    output = invocation.output
    if output.json:
        models = [
            {**_fields(model), "room": _room(model), "installed": True}
            for model in installed
        ]
        models += [
            {"name": known.name, "about": known.about, "installed": False}
            for known in missing
        ]
        output.document("list", {"models": models})
    elif output.quiet:
        for model in (*installed, *missing):
            output.result(model.name)
    else:
        rows = [_row(model) for model in installed]
        rows += [[known.name, *["-"] * 5, known.about] for known in missing]
        heads = ["MODEL", "SIZE", "KIND", "CONTEXT", "FITS", "DRAFT", "LAST USED"]
        output.table(heads, rows, wide=given["wide"])
        if not installed:
            output.note("nothing is installed; splashpy pull demo builds a small one")
    return 0


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
        facts = _fields(model) | _directory_fields(ModelDirectory.open(model.path))
        verdict = _verdict(model.path)
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
        facts["last_used"] = _when(facts["last_used"])
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


def remove(invocation: Invocation) -> int:
    """Delete models after saying what goes; 1 when a person said no.

    Raises:
        SplashError: no such model, or its files cannot be deleted.
    """
    from splashpy.package.library import Library

    library = Library(invocation.paths)
    removed = [
        _remove(invocation, library, name) for name in invocation.given["models"]
    ]
    if invocation.output.json:
        invocation.output.document("rm", {"removed": [row for row in removed if row]})
    return 0 if all(removed) else 1


def _remove(
    invocation: Invocation, library: Library, name: str
) -> dict[str, Any] | None:
    planned = library.remove(name, dry_run=True)
    output = invocation.output
    for path, size in planned.paths:
        output.note(f"{format_bytes(size):>9}  {path}")
    fields = {
        "name": name,
        "paths": [str(path) for path, _ in planned.paths],
        "freed_bytes": planned.freed_bytes,
    }
    if invocation.given["dry_run"]:
        return fields
    if not confirm(invocation, f"Delete {name}?"):
        return None
    library.remove(name)
    output.note(f"{name}: {format_bytes(planned.freed_bytes)} freed")
    return fields


def _fields(model: InstalledModel) -> dict[str, Any]:
    """An installed model as JSON."""
    return {
        "name": model.name,
        "path": str(model.path),
        "kind": model.kind,
        "origin": model.origin,
        "model_type": model.model_type,
        "revision": model.revision,
        "size_bytes": model.size_bytes,
        "context_max": model.context_max,
        "has_draft": model.has_draft,
        "last_used": model.last_used,
    }


def _directory_fields(directory: ModelDirectory) -> dict[str, Any]:
    """What the files of a model say, as JSON."""
    from splashpy.package.published_drafters import TargetSizes

    defaults = asdict(directory.sampling)
    set_here = {name: value for name, value in defaults.items() if value}
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


def _row(model: InstalledModel) -> list[str]:
    return [
        model.name,
        format_bytes(model.size_bytes),
        model.kind,
        format_tokens(model.context_max),
        _fits(model),
        "yes" if model.has_draft else "no",
        _when(model.last_used),
    ]


def _fits(model: InstalledModel) -> str:
    """``yes`` with its whole context, how much of that fits, ``no``, or unknown."""
    verdict = _verdict(model.path)
    if verdict is None:
        return "-"
    if verdict.level == "does not fit":
        return "no"
    whole = verdict.room >= model.context_max
    return "yes" if whole else format_tokens(verdict.room)


def _room(model: InstalledModel) -> int | None:
    """Tokens of context that fit; 0 where it would not load, None where unknown."""
    verdict = _verdict(model.path)
    if verdict is None:
        return None
    return 0 if verdict.level == "does not fit" else verdict.room


def _verdict(path: Path) -> MemoryVerdict | None:
    from splashpy.errors import PackageError
    from splashpy.packing.memory_verdict import judge
    from splashpy.packing.outlook import of_directory

    try:
        outlook = of_directory(path)
    except (PackageError, OSError):
        return None
    return judge(outlook.parts, outlook.config)


def _when(seconds: float | None) -> str:
    """A moment in local time; ``never`` without one."""
    if seconds is None:
        return "never"
    return datetime.fromtimestamp(seconds).astimezone().strftime("%Y-%m-%d %H:%M")


def _spoken(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, dict):
        return ", ".join(f"{name} {item}" for name, item in value.items())
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return str(value)


_MODELS = click.Argument(["models"], nargs=-1, required=True, metavar="MODEL...")
_MODEL = click.Argument(["model"], metavar="MODEL")

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
    arguments=(_MODELS,),
    options=("dry_run", "force", *COMMON),
    run=pull,
)

LIST = PageCommand(
    "list",
    page=Page(
        usage="",
        summary="List the models on this machine (also: splashpy ls).",
        examples=(
            ("splashpy list --all", "also models that can be pulled"),
            ("splashpy list -q", "names only"),
        ),
    ),
    options=("all", "wide", *COMMON),
    run=list_models,
)

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
    arguments=(_MODEL,),
    options=COMMON,
    run=show,
)

REMOVE = PageCommand(
    "rm",
    page=Page(
        usage="MODEL...",
        summary="Remove models from this machine, after a question.",
        examples=(
            ("splashpy rm demo --dry-run", "what would be deleted"),
            ("splashpy rm demo --yes", "without a question"),
        ),
    ),
    arguments=(_MODELS,),
    options=("dry_run", *COMMON),
    run=remove,
)
