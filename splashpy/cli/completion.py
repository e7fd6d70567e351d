# SPDX-License-Identifier: Apache-2.0
"""``splashpy completion``: scripts that complete commands and options in a shell.

They are made from the tables of commands and options and complete without starting
splashpy; only the names of installed models are asked for.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from typing import NamedTuple

import click

from splashpy.cli.commands import COMMANDS, nearest
from splashpy.cli.invocation import Invocation
from splashpy.cli.options import COMMON
from splashpy.cli.page import HELP_ROWS, Page, PageCommand
from splashpy.errors import UsageError

_TAKES_MODEL = ("MODEL", "[MODEL]")


class _Known(NamedTuple):
    """What can follow one command."""

    name: str
    help: str
    flags: dict[str, str]
    model: bool


def completion(invocation: Invocation) -> int:
    """Print the script for a shell.

    Raises:
        UsageError: no such shell.
    """
    words = invocation.given["words"]
    shell = words[0] if len(words) == 1 else ""
    if shell not in _SCRIPTS:
        near = nearest(shell, list(_SCRIPTS)) or list(_SCRIPTS)
        raise UsageError(
            f"there is no completion for {shell!r}" if shell else "which shell?",
            why="shells: " + ", ".join(_SCRIPTS),
            fix=[f"splashpy completion {name}" for name in near],
        )
    invocation.output.result(_SCRIPTS[shell](list(_commands())))
    return 0


def _commands() -> Iterator[_Known]:
    from splashpy.cli.program import load

    for name, row in COMMANDS.items():
        command = load(name)
        assert isinstance(command, PageCommand)  # every row of the table is one
        options = [o for _, rows in command.rows(rare=True) for o in rows]
        flags = {
            flag: option.help
            for option in (*options, *HELP_ROWS)
            for flag in option.flags.split()
        }
        help_text = row.help or COMMANDS[row.alias_of].help
        usage = command.page.usage.split(" ")[0].removesuffix("...")
        yield _Known(name, help_text, flags, usage in _TAKES_MODEL)


def _bash(commands: list[_Known]) -> str:
    names = " ".join(known.name for known in commands if " " not in known.name)
    cases = "\n".join(
        f"    {known.name}) flags={shlex.quote(' '.join(known.flags))};"
        f" models={'yes' if known.model else ''};;"
        for known in commands
        if " " not in known.name
    )
    return f"""\
# bash completion of splashpy; add to ~/.bashrc:  eval "$(splashpy completion bash)"
_splashpy() {{
  local word=${{COMP_WORDS[COMP_CWORD]}} flags= models=
  if [ "$COMP_CWORD" -eq 1 ]; then
    COMPREPLY=($(compgen -W {shlex.quote(names)} -- "$word"))
    return
  fi
  case ${{COMP_WORDS[1]}} in
{cases}
  esac
  case $word in
    -*) COMPREPLY=($(compgen -W "$flags" -- "$word"));;
    *) [ -z "$models" ] || [ "$COMP_CWORD" -ne 2 ] || \\
         COMPREPLY=($(compgen -W "$(splashpy list -q 2>/dev/null)" -- "$word"));;
  esac
}}
complete -o default -F _splashpy splashpy"""


def _zsh(commands: list[_Known]) -> str:
    listed = "\n".join(
        f"    {shlex.quote(f'{known.name}:{known.help}')}"
        for known in commands
        if " " not in known.name
    )
    cases = "\n".join(
        f"    {known.name}) flags=({' '.join(map(_zsh_flag, known.flags.items()))});"
        f" models={'yes' if known.model else ''};;"
        for known in commands
        if " " not in known.name
    )
    return f"""\
#compdef splashpy
# zsh completion of splashpy; add to ~/.zshrc:  eval "$(splashpy completion zsh)"
_splashpy() {{
  local -a commands flags
  local models=
  commands=(
{listed}
  )
  if (( CURRENT == 2 )); then
    _describe command commands
    return
  fi
  case $words[2] in
{cases}
  esac
  if [[ $words[CURRENT] == -* ]]; then
    _describe option flags
  elif [[ -n $models ]] && (( CURRENT == 3 )); then
    compadd -- $(splashpy list -q 2>/dev/null)
  else
    _files
  fi
}}
compdef _splashpy splashpy"""


def _zsh_flag(flag: tuple[str, str]) -> str:
    return shlex.quote(f"{flag[0]}:{flag[1]}")


def _fish(commands: list[_Known]) -> str:
    lines = [
        "# fish completion of splashpy;"
        " splashpy completion fish > ~/.config/fish/completions/splashpy.fish",
        "complete -c splashpy -f -n __fish_use_subcommand",
    ]
    for known in commands:
        if " " in known.name:
            continue
        lines.append(
            f"complete -c splashpy -n __fish_use_subcommand -a {known.name}"
            f" -d {shlex.quote(known.help)}"
        )
        after = f"-n '__fish_seen_subcommand_from {known.name}'"
        for flag, text in known.flags.items():
            kind = "-l" if flag.startswith("--") else "-s"
            lines.append(
                f"complete -c splashpy {after} {kind} {flag.lstrip('-')}"
                f" -d {shlex.quote(text)}"
            )
        if known.model:
            models = "'(splashpy list -q 2>/dev/null)'"
            lines.append(f"complete -c splashpy {after} -a {models}")
    return "\n".join(lines)


_SCRIPTS = {"bash": _bash, "zsh": _zsh, "fish": _fish}

COMPLETION = PageCommand(
    "completion",
    page=Page(
        usage="bash|zsh|fish",
        summary="Print a script that completes commands and options in a shell.",
        examples=(
            ('eval "$(splashpy completion bash)"', "in ~/.bashrc"),
            ('eval "$(splashpy completion zsh)"', "in ~/.zshrc, after compinit"),
            (
                "splashpy completion fish > splashpy.fish",
                "in ~/.config/fish/completions",
            ),
        ),
    ),
    arguments=(click.Argument(["words"], nargs=-1, metavar="bash|zsh|fish"),),
    options=tuple(name for name in COMMON if name != "json"),
    run=completion,
    lenient=True,
)
