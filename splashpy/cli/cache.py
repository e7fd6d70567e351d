# SPDX-License-Identifier: Apache-2.0
"""``splashpy cache``: the prompts kept on disk, and why one was read again."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from splashpy.cli.invocation import Invocation
from splashpy.cli.options import COMMON
from splashpy.cli.page import Page, PageCommand
from splashpy.cli.questions import confirm
from splashpy.errors import UsageError
from splashpy.units import format_bytes

if TYPE_CHECKING:
    from splashpy.cache.disk.survey import NamespaceReport

_NAME_DIGITS = 8
_SHOWN = 20


def list_cache(invocation: Invocation) -> int:
    """Print what is kept, one line for each model as it runs on this machine."""
    reports, output = _reports(invocation), invocation.output
    if output.json:
        output.document("cache-ls", {"entries": [_fields(each) for each in reports]})
        return 0
    rows = [
        [
            each.path.name[:_NAME_DIGITS],
            str(each.identity.get("model_type", "unknown")),
            str(each.identity.get("kv", "-")),
            format_bytes(each.nbytes),
            f"{each.tokens:,}",
            str(each.counts["state"]),
            _when(each.last_used) + (" (in use)" if each.used else ""),
        ]
        for each in reports
    ]
    heads = ["ID", "MODEL TYPE", "KV", "SIZE", "TOKENS", "PLACES", "LAST USED"]
    output.table(heads, rows, wide=bool(invocation.given["wide"]))
    if not reports:
        output.note(f"nothing is kept in {invocation.paths.cached_prompts}")
    return 0


def show_cache(invocation: Invocation) -> int:
    """Print the identity of one entry and the places prompts are resumed at.

    Raises:
        UsageError: no entry has this id.
    """
    report, output = _named(invocation, invocation.given["entry"]), invocation.output
    if output.json:
        states = [
            {"tokens": e.position, "bytes": e.nbytes, "used": e.used}
            for e in report.states()
        ]
        output.document("cache-show", {**_fields(report), "places": states})
        return 0
    output.result(f"{'directory':<10}  {report.path}")
    for name, value in report.identity.items():
        output.result(f"{name:<10}  {value}")
    for entry in report.states()[:_SHOWN]:
        size = format_bytes(entry.nbytes)
        output.result(
            f"{'place':<10}  {entry.position:>9,} tokens  {size:>9}  "
            f"{_when(entry.used)}"
        )
    return 0


def clear_cache(invocation: Invocation) -> int:
    """Delete one entry, or all of them and the list of lookups; 1 when in use.

    Raises:
        UsageError: no entry has this id, or nobody can be asked.
    """
    from splashpy.cache.disk.lookup_file import LookupFile
    from splashpy.cache.disk.survey import clear

    entry, output = invocation.given["entry"], invocation.output
    reports = [_named(invocation, entry)] if entry else _reports(invocation)
    size = sum(each.nbytes for each in reports)
    what = f"{len(reports)} {'entry' if len(reports) == 1 else 'entries'}"
    if reports and not confirm(invocation, f"Delete {what}, {format_bytes(size)}?"):
        return 1
    kept = [each for each in reports if not clear(each)]
    if not entry:
        LookupFile(invocation.paths.cached_prompts).path.unlink(missing_ok=True)
    for each in kept:
        output.warn(f"{each.path.name[:_NAME_DIGITS]} is in use and stays")
    freed = size - sum(each.nbytes for each in kept)
    if output.json:
        output.document("cache-clear", {"freed_bytes": freed, "in_use": len(kept)})
    else:
        output.note(f"{format_bytes(freed)} freed")
    return 1 if kept else 0


def verify_cache(invocation: Invocation) -> int:
    """Read every record; delete the damaged ones of entries that are not in use.

    Returns:
        5 when a record is damaged: a prompt it belongs to is read again.
    """
    from splashpy.cache.disk.directory import remove
    from splashpy.cache.disk.survey import damaged

    reports, output = _reports(invocation), invocation.output
    found = [(each, list(damaged(each))) for each in reports]
    records = sum(len(each.entries) for each in reports)
    bad = [(path, why) for _, rows in found for path, why in rows]
    for each, rows in found:
        for path, _ in rows if not each.used else ():
            remove(path)
    if output.json:
        rows = [{"file": str(path), "why": why} for path, why in bad]
        output.document("cache-verify", {"records": records, "damaged": rows})
    else:
        for path, why in bad:
            output.result(f"{path}: {why}")
        output.note(f"{records} records, {len(bad)} damaged")
    return 5 if bad else 0


def explain(invocation: Invocation) -> int:
    """Say what the latest prompts were given, and why not more."""
    from splashpy.cache.disk.lookup_file import LookupFile

    count, output = invocation.given["last"] or 3, invocation.output
    rows = LookupFile(invocation.paths.cached_prompts).read()[-count:]
    if output.json:
        output.document("cache-why", {"lookups": rows})
        return 0
    for row in rows:
        for line in reasons(row):
            output.result(line)
    if not rows:
        output.note(
            "no lookup was written down: no prompt was read yet, or --cache-disk 0"
        )
    return 0


def reasons(row: dict[str, Any]) -> list[str]:
    """A lookup in words, two or three lines."""
    length, resumed = row.get("length", 0), row.get("resumed", 0)
    source = {"ram": "from memory", "disk": "from disk"}.get(row.get("tier", ""), "")
    got = f"{resumed:,} of {length:,} tokens restored {source}".rstrip()
    lines = [f"{_when(row.get('at', 0))}  {row.get('model', '')}  {got}"]
    said = _REASONS.get(row.get("reason", ""), "")
    shared = row.get("shared", 0)
    lines.append(f"  {said.format(shared=f'{shared:,}', lost=f'{shared - resumed:,}')}")
    where = row.get("where")
    if where:
        lines.append(f"  {_departure(where)}")
    return lines


_REASONS = {
    "empty": "nothing was kept for this model on this machine with these options",
    "short": "no kept prompt begins with these tokens; {shared} are shared",
    "departs": "it departs from what was kept after {shared} tokens",
    "lost": "{shared} tokens are shared, but what was kept there had to make room; "
    "{lost} were read again",
    "unsaved": "{shared} tokens are shared, but this model can be resumed only where "
    "its state was kept; {lost} were read again, and it is kept there now",
    "whole": "all of it was kept that can be",
}


def _departure(where: dict[str, Any]) -> str:
    now, was = where.get("now", ""), where.get("was", "")
    change = f"is {now!r}" + (f", was {was!r}" if was else "")
    number = where.get("message", 0)
    if not number:
        return f"the difference is outside of the messages: {change}"
    return (
        f"message {number} ({where.get('role', '')}), character "
        f"{where.get('character', 0)}: {change}"
    )


def _reports(invocation: Invocation) -> Sequence[NamespaceReport]:
    from splashpy.cache.disk.survey import survey

    return survey(invocation.paths.cached_prompts)


def _named(invocation: Invocation, entry: str) -> NamespaceReport:
    reports = _reports(invocation)
    found = [each for each in reports if each.path.name.startswith(entry.lower())]
    if len(found) == 1:
        return found[0]
    known = ", ".join(each.path.name[:_NAME_DIGITS] for each in reports)
    raise UsageError(
        f"{'no' if not found else 'more than one'} entry begins with {entry!r}",
        why=f"kept are {known}" if known else "nothing is kept",
        fix=["splashpy cache ls"],
    )


def _fields(report: NamespaceReport) -> dict[str, Any]:
    return {
        "id": report.path.name,
        "path": str(report.path),
        "identity": report.identity,
        "bytes": report.nbytes,
        "tokens": report.tokens,
        "records": dict(report.counts),
        "last_used": report.last_used or None,
        "in_use": report.used,
    }


def _when(seconds: float) -> str:
    if not seconds:
        return "never"
    return datetime.fromtimestamp(seconds).astimezone().strftime("%Y-%m-%d %H:%M")


_PRIVATE = "What is kept are prompts and answers; only you may read the directory."

LS = PageCommand(
    "cache ls",
    page=Page(
        usage="",
        summary="List the prompts kept on disk (also: splashpy cache).",
        examples=(
            ("splashpy cache ls", "one line for each model as it runs here"),
            ("splashpy cache ls --json", "with the identity in full"),
        ),
        notes=(
            "Others: splashpy cache show, why, warm, clear and verify.",
            _PRIVATE,
            "What nobody used for seven days is deleted when a model is loaded.",
        ),
    ),
    options=("wide", *COMMON),
    run=list_cache,
)

SHOW = PageCommand(
    "cache show",
    page=Page(
        usage="ID",
        summary="Say what one entry belongs to and where prompts are resumed.",
        examples=(
            ("splashpy cache show 3f9a", "the beginning of an id is enough"),
            ("splashpy cache show 3f9a --json", "every place, for a program"),
        ),
    ),
    arguments=(click.Argument(["entry"], metavar="ID"),),
    options=COMMON,
    run=show_cache,
)

WHY = PageCommand(
    "cache why",
    page=Page(
        usage="",
        summary="Say what the latest prompts were given, and why not more.",
        examples=(
            ("splashpy cache why", "the last three prompts"),
            ("splashpy cache why --last 1 --json", "the last one, for a program"),
        ),
        notes=("Where a prompt departs, its message and character are named.",),
    ),
    options=("last", *COMMON),
    run=explain,
)

CLEAR = PageCommand(
    "cache clear",
    page=Page(
        usage="[ID]",
        summary="Delete the prompts kept on disk, after a question.",
        examples=(
            ("splashpy cache clear --yes", "everything, without a question"),
            ("splashpy cache clear 3f9a", "one entry"),
        ),
        notes=("An entry an engine uses stays; exit code 1 says so.",),
    ),
    arguments=(click.Argument(["entry"], metavar="[ID]", required=False),),
    options=COMMON,
    run=clear_cache,
)

VERIFY = PageCommand(
    "cache verify",
    page=Page(
        usage="",
        summary="Read every kept record and delete the damaged ones.",
        examples=(
            ("splashpy cache verify", "exit code 5 when one was damaged"),
            ("splashpy cache verify --json", "the damaged files, for a program"),
        ),
        notes=("A damaged record is never used, whether or not this was run.",),
    ),
    options=COMMON,
    run=verify_cache,
)
