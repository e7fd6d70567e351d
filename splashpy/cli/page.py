# SPDX-License-Identifier: Apache-2.0
"""A command and its help page, both made from rows of the option table.

A page has the usage line, one sentence, examples, and the options under their
headings, one line each, at most 80 columns and 60 lines; rare options stand on the
page of ``--help-all``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import click

from splashpy.cli import values
from splashpy.cli.invocation import Invocation
from splashpy.cli.option import Option
from splashpy.cli.options import GROUPS, OPTIONS

Run = Callable[[Invocation], int]
"""A command: returns the exit code."""


@dataclass(frozen=True, slots=True)
class Page:
    """What a help page says beside the options.

    Attributes:
        usage: arguments, as in ``[MODEL] [PROMPT...]``.
        summary: one sentence.
        examples: commands that work as printed, with what they do.
        notes: sentences after the options: exit codes, rules for the arguments.
        defaults: by option, what happens without it where this command differs from
            the table.
        helps: by option, what it does where that differs.
    """

    usage: str
    summary: str
    examples: tuple[tuple[str, str], ...] = ()
    notes: tuple[str, ...] = ()
    defaults: Mapping[str, str] = field(default_factory=dict)
    helps: Mapping[str, str] = field(default_factory=dict)


class PageCommand(click.Command):
    """A command whose options are rows of the table."""

    def __init__(
        self,
        name: str,
        *,
        page: Page,
        options: tuple[str, ...],
        run: Run,
        arguments: tuple[click.Argument, ...] = (),
        lenient: bool = False,
    ):
        """A command; a lenient one works where config.toml cannot be used."""
        self.page = page
        self.options = options
        self.run = run
        self.lenient = lenient
        super().__init__(
            name,
            params=[*arguments, *(_parameter(OPTIONS[row]) for row in options), _ALL],
            context_settings={"help_option_names": ["-h", "--help"]},
            short_help=page.summary,
        )

    def invoke(self, ctx: click.Context) -> int:
        """Run the command with what was given; returns the exit code."""
        invocation = Invocation.of(ctx.params, lenient=self.lenient)
        code = self.run(invocation)
        for close in invocation.closing:
            close()
        return code

    def get_help(self, ctx: click.Context) -> str:
        """The page without the rare options."""
        return render(self, rare=False)

    def rows(self, *, rare: bool) -> Iterator[tuple[str, list[Option]]]:
        """Headings and their options, in the order of the table."""
        for heading, rows in GROUPS.items():
            shown = [
                replace(
                    row,
                    default=self.page.defaults.get(row.name, row.default),
                    help=self.page.helps.get(row.name, row.help),
                )
                for row in rows
                if row.name in self.options
                and not row.hidden
                and (rare or not row.rare)
            ]
            if shown:
                yield heading, shown


def render(command: PageCommand, *, rare: bool) -> str:
    """The help page as text."""
    page = command.page
    lines = [f"Usage: splashpy {command.name} {page.usage}".rstrip() + " [OPTIONS]"]
    lines += ["", page.summary, ""]
    for example, meaning in page.examples:
        lines += [f"  {example}", f"      {meaning}"]
    for heading, rows in command.rows(rare=rare):
        lines += ["", f"{heading}:"] + [f"  {_line(row)}" for row in rows]
    lines += [f"  {_line(row)}" for row in HELP_ROWS]
    lines += ["", *page.notes] if page.notes else []
    topics = "keys | env | exit-codes | models | offline | speculation"
    lines += ["", f"More: splashpy help {topics}"]
    return "\n".join(lines)


_WIDTH = 28  # longest spelling that shares its line with the text


def _line(row: Option) -> str:
    text = row.help + (f" [{row.default}]" if row.default else "")
    return f"{row.spelling:<{_WIDTH}} {text}"


def _parameter(row: Option) -> click.Option:
    flags = [*row.flags.split(), row.name]
    if row.parser is None:
        if row.repeat:
            return click.Option(flags, count=True)
        return click.Option(flags, is_flag=True, default=False)
    kind = _Value(row)
    return click.Option(flags, type=kind, multiple=row.repeat, metavar=row.metavar)


class _Value(click.ParamType):
    """Reads a value with the parser of its row."""

    name = "value"

    def __init__(self, row: Option):
        self.row = row

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> Any:
        if not isinstance(value, str) or self.row.parser is None:
            return value
        return values.parse(self.row.parser, value, self.row.flag)


def _print_all(ctx: click.Context, param: click.Parameter, value: bool) -> None:  # noqa: FBT001
    """Callback of ``--help-all``; click fixes its parameters."""
    if value and isinstance(ctx.command, PageCommand):
        click.echo(render(ctx.command, rare=True))
        ctx.exit(0)


_ALL = click.Option(
    ["--help-all"],
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_print_all,
)

HELP_ROWS = (
    Option("-h --help", "this page"),
    Option("--help-all", "this page with every option"),
)
"""Options click handles itself, at the end of the common ones."""
