# SPDX-License-Identifier: Apache-2.0
"""``list`` and ``rm``: the models on this machine."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from splashpy.cli.invocation import Invocation
from splashpy.cli.options import COMMON
from splashpy.cli.page import Page, PageCommand
from splashpy.cli.questions import confirm
from splashpy.units import format_bytes, format_tokens

if TYPE_CHECKING:
    from splashpy.package.library import InstalledModel, Library, Removal
    from splashpy.packing.memory_verdict import MemoryVerdict


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
            {**facts_of(model), "room": _room(model), "installed": True}
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


def remove(invocation: Invocation) -> int:
    """Delete models after saying what goes; 1 when a person said no.

    Raises:
        SplashError: no such model, or its files cannot be deleted.
    """
    from splashpy.package.library import Library

    library = Library(invocation.paths)
    names = list(dict.fromkeys(invocation.given["models"]))
    # A name that is wrong is found before anything is deleted.
    planned = [library.remove(name, dry_run=True) for name in names]
    removed = [
        _remove(invocation, library, name, plan)
        for name, plan in zip(names, planned, strict=True)
    ]
    if invocation.output.json:
        invocation.output.document("rm", {"removed": [row for row in removed if row]})
    return 0 if all(removed) else 1


def _remove(
    invocation: Invocation, library: Library, name: str, planned: Removal
) -> dict[str, Any] | None:
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


def facts_of(model: InstalledModel) -> dict[str, Any]:
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


def _row(model: InstalledModel) -> list[str]:
    return [
        model.name,
        format_bytes(model.size_bytes),
        model.kind,
        format_tokens(model.context_max),
        _fits(model),
        "yes" if model.has_draft else "no",
        moment(model.last_used),
    ]


def _fits(model: InstalledModel) -> str:
    """``yes`` with its whole context, how much of that fits, ``no``, or unknown."""
    verdict = verdict_of(model.path)
    if verdict is None:
        return "-"
    if verdict.level == "does not fit":
        return "no"
    whole = verdict.room >= model.context_max
    return "yes" if whole else format_tokens(verdict.room)


def _room(model: InstalledModel) -> int | None:
    """Tokens of context that fit; 0 where it would not load, None where unknown."""
    verdict = verdict_of(model.path)
    if verdict is None:
        return None
    return 0 if verdict.level == "does not fit" else verdict.room


def verdict_of(path: Path) -> MemoryVerdict | None:
    """Whether the model in a directory fits this computer; None where unknown."""
    from splashpy.errors import PackageError
    from splashpy.packing.memory_verdict import judge
    from splashpy.packing.outlook import of_directory

    try:
        outlook = of_directory(path)
    except (PackageError, OSError):
        return None
    return judge(outlook.parts, outlook.config)


def moment(seconds: float | None) -> str:
    """A moment in local time; ``never`` without one."""
    if seconds is None:
        return "never"
    return datetime.fromtimestamp(seconds).astimezone().strftime("%Y-%m-%d %H:%M")


MODELS = click.Argument(["models"], nargs=-1, required=True, metavar="MODEL...")

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
    arguments=(MODELS,),
    options=("dry_run", *COMMON),
    run=remove,
)
