# SPDX-License-Identifier: Apache-2.0
"""The one table of commands; a name may have two words.

The help page, the man page, the reference and the suggestions for a mistyped name are
made from it, so listing the commands imports none of them. This module imports next to
nothing: it is all that ``splashpy --help`` needs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from splashpy.version import __version__


class CommandEntry(NamedTuple):
    """One row of the table.

    Attributes:
        module: module below ``splashpy.cli`` and the name of the command in it.
        help: one line.
        group: commands of one group stand together.
        synopsis: arguments, as the table of commands shows them.
        alias_of: the name this one is another spelling of; aliases are not listed.
        part_of: the command on whose line of the overview this one is mentioned.
    """

    module: str
    help: str = ""
    group: str = ""
    synopsis: str = ""
    alias_of: str = ""
    part_of: str = ""


COMMANDS: dict[str, CommandEntry] = {
    "chat": CommandEntry(
        "chat:CHAT", "talk in the terminal", "Use", "[MODEL] [PROMPT...]"
    ),
    "run": CommandEntry(
        "run:RUN", "one answer to stdout", "Use", "[MODEL] [PROMPT...]"
    ),
    "generate": CommandEntry("run:RUN", alias_of="run"),
    "pull": CommandEntry("pull:PULL", "fetch and build models", "Models", "MODEL..."),
    "list": CommandEntry("models:LIST", "models on this machine", "Models"),
    "ls": CommandEntry("models:LIST", alias_of="list"),
    "show": CommandEntry("show:SHOW", "what a model consists of", "Models", "MODEL"),
    "rm": CommandEntry("models:REMOVE", "remove models", "Models", "MODEL..."),
    "pack": CommandEntry(
        "pack:PACK", "build a package; also unpack", "Models", "TARGET [DRAFT] -o DIR"
    ),
    "unpack": CommandEntry(
        "unpack:UNPACK",
        "take a package apart",
        "Models",
        "PACKAGE -o DIR",
        part_of="pack",
    ),
    "cache ls": CommandEntry(
        "cache:LS", "kept prompts; also show, why, warm, ...", "Models"
    ),
    "cache": CommandEntry("cache:LS", alias_of="cache ls"),
    "cache show": CommandEntry(
        "cache:SHOW", "one entry of them", "Models", "ID", part_of="cache"
    ),
    "cache why": CommandEntry(
        "cache:WHY", "why a prompt was read again", "Models", part_of="cache"
    ),
    "cache warm": CommandEntry(
        "cache_warm:WARM",
        "read a prompt ahead of time",
        "Models",
        "FILE [MODEL]",
        part_of="cache",
    ),
    "cache clear": CommandEntry(
        "cache:CLEAR", "delete kept prompts", "Models", "[ID]", part_of="cache"
    ),
    "cache verify": CommandEntry(
        "cache:VERIFY", "find damaged records", "Models", part_of="cache"
    ),
    "serve": CommandEntry(
        "serve:SERVE", "for editors and agents; also ps, stop", "Serve", "[MODEL]"
    ),
    "ps": CommandEntry("servers:PS", "servers that run", "Serve", part_of="serve"),
    "stop": CommandEntry(
        "servers:STOP", "stop a server", "Serve", "[PORT]", part_of="serve"
    ),
    "launch": CommandEntry(
        "launch:LAUNCH",
        "start a coding agent; also integrations",
        "Serve",
        "AGENT",
    ),
    "integrations": CommandEntry(
        "launch:INTEGRATIONS", "configurations for a server", "Serve", part_of="launch"
    ),
    "verify": CommandEntry(
        "verify:VERIFY",
        "prove that drafts change nothing",
        "Prove",
        "[MODEL]",
    ),
    "bench": CommandEntry(
        "bench:BENCH", "measure what drafts are worth", "Prove", "[MODEL]"
    ),
    "train": CommandEntry(
        "train:TRAIN", "train a drafter for a model; also data", "Prove", "[MODEL]"
    ),
    "train data": CommandEntry(
        "train_data:TRAIN_DATA",
        "write the texts for that",
        "Prove",
        "[MODEL] [FILE]",
        part_of="train",
    ),
    "doctor": CommandEntry("doctor:DOCTOR", "look at this machine", "Other"),
    "history": CommandEntry(
        "history:HISTORY", "saved conversations", "Other", "[ACTION] [ID]"
    ),
    "config": CommandEntry(
        "settings:CONFIG", "config.toml; also completion", "Other", "[ACTION]"
    ),
    "completion": CommandEntry(
        "completion:COMPLETION",
        "completion for a shell",
        "Other",
        "bash|zsh|fish",
        part_of="config",
    ),
    "help": CommandEntry(
        "help:HELP", "explain a command, an error or a topic", "Other", "[SUBJECT]"
    ),
}

EXAMPLES = (
    'splashpy run demo "Name three primary colours."',
    'git diff | splashpy run demo -p "Write a commit message."',
)


def listed() -> dict[str, CommandEntry]:
    """The commands without their aliases."""
    return {name: row for name, row in COMMANDS.items() if not row.alias_of}


def nearest(word: str, names: Sequence[str]) -> list[str]:
    """At most three names that look like a mistyped word, the nearest first."""
    from difflib import get_close_matches

    return get_close_matches(word, names, n=3, cutoff=0.6)


def overview() -> str:
    """What bare ``splashpy`` prints: at most 24 lines of at most 80 columns."""
    lines = ["splashpy: local speculative decoding for Apple silicon", ""]
    shown = {name: row for name, row in listed().items() if not row.part_of}
    width = max(len(f"{name} {row.synopsis}") for name, row in shown.items())
    for name, row in shown.items():
        call = f"{name} {row.synopsis}".rstrip()
        lines.append(f"  splashpy {call:<{width}}  {row.help}")
    lines += ["", "Examples:", *(f"  {example}" for example in EXAMPLES)]
    lines += ["splashpy COMMAND --help lists the options of a command."]
    return "\n".join(lines)


def version_text(*, verbose: bool) -> str:
    """``splashpy X.Y.Z``; with ``verbose`` also Python, mlx and the platform."""
    if not verbose:
        return f"splashpy {__version__}"
    import platform
    from importlib.metadata import PackageNotFoundError, version

    try:
        mlx = version("mlx")
    except PackageNotFoundError:
        mlx = "not installed"
    return "\n".join(
        (
            f"splashpy {__version__}",
            f"Python   {platform.python_version()}",
            f"mlx      {mlx}",
            f"platform {platform.platform()}",
        )
    )
