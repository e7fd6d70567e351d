# SPDX-License-Identifier: Apache-2.0
"""``splashpy help``: a command, an error code or a topic explained."""

from __future__ import annotations

from textwrap import wrap

import click

from splashpy.cli import commands, program
from splashpy.cli.catalogue import CATALOGUE, CatalogueEntry
from splashpy.cli.invocation import Invocation
from splashpy.cli.options import COMMON
from splashpy.cli.page import Page, PageCommand, render
from splashpy.cli.topics import TOPICS, WIDTH
from splashpy.errors import UsageError


def show_help(invocation: Invocation) -> int:
    """Print the explanation of the subject, or what there is to explain.

    Raises:
        UsageError: there is no such subject.
    """
    subject = " ".join(invocation.given["subject"]) or None
    text = overview() if subject is None else explain(subject)
    if invocation.output.json:
        invocation.output.document("help", {"subject": subject, "text": text})
    else:
        invocation.output.result(text)
    return 0


def explain(subject: str) -> str:
    """The page of a command, an error code or a topic.

    Raises:
        UsageError: there is no such subject; names the nearest.
    """
    if subject in commands.COMMANDS:
        command = program.load(subject)
        assert isinstance(command, PageCommand)  # every row of the table is one
        return render(command, rare=True)
    if subject.upper() in CATALOGUE:
        return error_page(subject.upper(), CATALOGUE[subject.upper()])
    if subject.lower() in TOPICS:
        return TOPICS[subject.lower()][1]()
    subjects = [*commands.COMMANDS, *CATALOGUE, *TOPICS]
    near = commands.nearest(subject, subjects)
    raise UsageError(
        f"there is no help about {subject!r}",
        fix=[f"splashpy help {name}" for name in near] or ["splashpy help"],
    )


def error_page(code: str, row: CatalogueEntry) -> str:
    """What a code means and what helps."""
    lines = [f"{code} (exit code {row.exit_code})", "", *wrap(row.when, WIDTH), ""]
    for fix in row.fixes:
        lines += wrap(fix, WIDTH, initial_indent="  - ", subsequent_indent="    ")
    return "\n".join(lines)


def overview() -> str:
    """Every subject there is help about."""
    lines = ["splashpy help SUBJECT explains", "", "a command:"]
    lines += [f"  {name:<12} {row.help}" for name, row in commands.listed().items()]
    lines += ["", "a topic:"]
    lines += [f"  {name:<12} {about}" for name, (about, _) in TOPICS.items()]
    lines += ["", "an error code:"]
    lines += wrap(
        "  ".join(CATALOGUE), WIDTH, initial_indent="  ", subsequent_indent="  "
    )
    return "\n".join(lines)


HELP = PageCommand(
    "help",
    page=Page(
        usage="[SUBJECT]",
        summary="Explain a command, an error code or a topic.",
        examples=(
            ("splashpy help run", "every option of a command"),
            ("splashpy help E-OFFLINE", "an error code"),
            ("splashpy help speculation", "a topic; splashpy help lists them"),
        ),
    ),
    arguments=(click.Argument(["subject"], nargs=-1, metavar="[SUBJECT]"),),
    options=COMMON,
    run=show_help,
    lenient=True,
)
