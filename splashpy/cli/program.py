# SPDX-License-Identifier: Apache-2.0
"""The program ``splashpy`` in click's terms: finds its commands in the table.

A command's module is imported when it is used.
"""

from __future__ import annotations

from importlib import import_module

import click

from splashpy.cli.commands import COMMANDS, listed, nearest, overview, version_text
from splashpy.errors import UsageError


def load(name: str) -> click.Command:
    """The command of this name; imports its module."""
    module, _, attribute = COMMANDS[name].module.partition(":")
    return getattr(import_module(f"splashpy.cli.{module}"), attribute)


class CommandTable(click.Group):
    """The program ``splashpy``: finds its commands in the table."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names in the order of the table."""
        return list(listed())

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command, imported now; None for an unknown name."""
        return load(cmd_name) if cmd_name in COMMANDS else None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As click does, with commands of two words and our own for an unknown one.

        Raises:
            UsageError: there is no such command.
        """
        both = " ".join(args[:2])
        if both in COMMANDS:
            args = [both, *args[2:]]
        if args[0] not in COMMANDS and not args[0].startswith("-"):
            near = nearest(args[0], list(COMMANDS))
            raise UsageError(
                f"there is no command {args[0]!r}",
                fix=[f"splashpy {name}" for name in near] or ["splashpy --help"],
            )
        return super().resolve_command(ctx, args)

    def get_help(self, ctx: click.Context) -> str:
        """The table of commands and two examples."""
        return overview()


def _program(*, version: bool, verbose: int) -> None:
    """Without a command: the version or the table."""
    context = click.get_current_context()
    if version:
        click.echo(version_text(verbose=verbose > 0))
        context.exit(0)
    if context.invoked_subcommand is None:
        click.echo(overview())


PROGRAM = CommandTable(
    name="splashpy",
    callback=_program,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    params=[
        click.Option(["--version"], is_flag=True, help="print the version"),
        click.Option(["-v", "--verbose"], count=True, help="more detail"),
    ],
)
