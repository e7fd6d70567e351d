# SPDX-License-Identifier: Apache-2.0
"""The one table of options, and what the command line reads of the environment.

A command names the rows it takes; the parser, the help page, the man page and the
reference are all made from the rows. Only what works is in the table.

Precedence: flag, environment variable, ``config.toml``, the package's own default. An
option that was not given has the value None (a switch: False), so that each later
source can tell.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass

from splashpy.cli import values
from splashpy.cli.bench_options import BENCH_ROWS
from splashpy.cli.engine_options import ENGINE_ROWS
from splashpy.cli.option import Option
from splashpy.cli.packing_options import PACKING_ROWS
from splashpy.cli.server_options import SERVER_ROWS
from splashpy.cli.training_options import TRAINING_ROWS

_TRUE_WORDS = ("1", "ON", "YES", "TRUE")  # the spellings huggingface_hub accepts


GROUPS: dict[str, tuple[Option, ...]] = {
    "Prompt": (
        Option("-p --prompt", "the prompt, instead of words", "TEXT", values.text),
        Option(
            "-s --system", "instructions before the talk", "TEXT|@FILE", values.text
        ),
        Option(
            "-f --file",
            "text file to put before the prompt (repeat)",
            "FILE",
            values.text,
            repeat=True,
        ),
        Option("--messages", "JSON array of OpenAI messages", "FILE", values.text),
        Option("--raw", "continue the text; no chat template", rare=True),
        Option("--prefill-only", "read the prompt, answer nothing", rare=True),
    ),
    "Output": (
        Option(
            "--reasoning",
            "thinking, on stderr",
            "auto|show|hide",
            values.choice("auto", "show", "hide"),
            default="auto: on a terminal",
        ),
        Option("-x --extract", "only the first fenced code block"),
        Option("--extract-last", "only the last fenced code block", rare=True),
        Option("--no-stream", "print the answer when it is complete"),
        Option("-o --output", "write the answer to FILE", "FILE", values.text),
        Option("--stats", "speed, acceptance and decisions on stderr"),
        Option("--draft-colors", "colour tokens by where they came from"),
        Option("--fail-on-length", "exit 4 when the answer was cut off", rare=True),
        Option("--json-stream", "every engine event, one JSON line each", rare=True),
    ),
    "Scope": (
        Option("--all", "also models that can be pulled"),
        Option("--wide", "do not shorten columns to the terminal"),
        Option("--dry-run", "say what would be done, do nothing"),
        Option("--force", "fetch and build again"),
        Option(
            "--vision",
            "also the vision tower, which no text needs",
            key="with_vision",
            rare=True,
        ),
    ),
    "Proof": (
        Option(
            "--prompts",
            "one prompt a line",
            "FILE|quick",
            values.text,
            default="quick",
        ),
        Option(
            "-n --number", "prompts to decode", "N", values.integer(1), default="12"
        ),
        Option(
            "--seeds",
            "seeded texts of each prompt, too",
            "N",
            values.integer(1),
            default="none",
        ),
        Option("--race", "watch both ways of decoding side by side"),
        Option("--sampling-test", "also test the distribution of draws"),
        Option(
            "--ties",
            "whether a tie is an error",
            "report|strict",
            values.choice("report", "strict"),
            default="report",
            rare=True,
        ),
        Option("--files", "check the files instead"),
        Option("--full", "with --files: their digests too"),
    ),
    "Machine": (
        Option("--load", "load a model, let it write a little", "MODEL", values.text),
        Option("--strict", "exit 1 for a warning, too"),
        Option("--kernels", "compare and race every kernel"),
        Option(
            "--sustain",
            "then run each that won for so long",
            "SECONDS",
            values.decimal(0, 600),
            rare=True,
        ),
    ),
    **BENCH_ROWS,
    **ENGINE_ROWS,
    "Screen": (
        Option("-c --continue", "go on with the last conversation", key="resume_last"),
        Option(
            "-r --resume",
            "go on with the one named or found",
            "ID|TEXT",
            values.text,
            key="resumed",
        ),
        Option("--no-save", "keep nothing of this chat on disk"),
        Option("--no-attach", "load the model even where a server has it", rare=True),
        Option("--plain", "lines instead of a screen"),
        Option("--inline", "below the prompt, not the whole terminal", rare=True),
        Option("--theme", "colours of the screen", "NAME", values.text),
        Option("--no-mouse", "leave the mouse to the terminal", rare=True),
        Option(
            "--replay", "play a recorded event file", "FILE", values.text, hidden=True
        ),
        Option(
            "--speed",
            "how fast a replay runs",
            "F",
            values.decimal(0),
            hidden=True,
        ),
    ),
    "Cache": (
        Option(
            "--last",
            "lookups to explain",
            "N",
            values.integer(1),
            default="3",
        ),
    ),
    **SERVER_ROWS,
    **PACKING_ROWS,
    **TRAINING_ROWS,
    "Common": (
        Option("-q --quiet", "no notes and no progress"),
        Option("-v --verbose", "more detail (repeat)", repeat=True),
        Option("--json", "the result as one JSON document"),
        Option("--no-progress", "no progress display"),
        Option(
            "--color",
            "when to use colours",
            "auto|always|never",
            values.choice("auto", "always", "never"),
            default="auto",
        ),
        Option("--offline", "never use the network", variable="HF_HUB_OFFLINE"),
        Option("-y --yes", "do not ask"),
        Option("--debug", "show the traceback of an error"),
    ),
}
"""Rows under the heading they stand under on a page."""

OPTIONS: dict[str, Option] = {row.name: row for rows in GROUPS.values() for row in rows}

ENGINE = tuple(row.name for row in GROUPS["Engine"])
SAMPLING = tuple(row.name for row in GROUPS["Sampling"])
COMMON = tuple(row.name for row in GROUPS["Common"])

VARIABLES: dict[str, str] = {
    "SPLASHPY_MODEL": "model to use when none is named",
    "SPLASHPY_HOME": "one directory for all of splashpy's files",
    "SPLASHPY_CACHE": "directory for files that may be deleted at any time",
    "SPLASHPY_MAX_CONTEXT": "as --max-context",
    "SPLASHPY_MAX_MEMORY": "as --max-memory",
    "SPLASHPY_HOST": "as --host of splashpy serve",
    "SPLASHPY_PORT": "as --port of splashpy serve",
    "SPLASHPY_API_KEY": "as --api-key; other programs cannot see it in ps",
    "SPLASHPY_BLAS": "Linux: auto, reference, or the path of a BLAS library",
    "SPLASHPY_KERNELS": "Metal kernels: off, only NAME,NAME, or all but -NAME,-NAME",
    "HF_HUB_OFFLINE": "1: never use the network (TRANSFORMERS_OFFLINE too)",
    "HF_TOKEN": "key for gated and private repositories",
    "HF_HOME": "where Hugging Face downloads are kept (HF_HUB_CACHE too)",
    "HF_ENDPOINT": "another hub than huggingface.co",
    "NO_COLOR": "not empty: no colours",
    "FORCE_COLOR": "not empty: colours even without a terminal",
    "EDITOR": "for config edit and long prompts of the chat (VISUAL comes first)",
    "PAGER": "for long messages of the chat",
    "TERM": "dumb: no colours, and chat works in lines",
    "COLORTERM": "truecolor or 24bit: the chat uses colours of its own",
    "COLUMNS": "width of tables",
    "CI": "not empty: chat works in lines",
    "SSH_CONNECTION": "set by ssh: what is copied travels through the terminal",
    "TMUX": "set by tmux: what is copied goes to its buffer, too",
}
"""What splashpy itself looks at, and what that does. Other Hugging Face variables are
read by huggingface_hub, ``TEXTUAL_*`` by Textual."""

_HONOURED = (
    *VARIABLES,
    "TRANSFORMERS_OFFLINE",
    "COLORFGBG",
    "SSH_TTY",
    "TEXTUAL_ANIMATIONS",
    "VISUAL",
    "DISPLAY",
    "WAYLAND_DISPLAY",
)


@dataclass(frozen=True, slots=True)
class Environment:
    """The variables of :data:`VARIABLES` that are set, read once."""

    variables: Mapping[str, str]

    @classmethod
    def read(cls) -> Environment:
        """What the process was started with."""
        found = {name: os.environ.get(name, "") for name in _HONOURED}
        return cls({name: value for name, value in found.items() if value})

    def get(self, name: str) -> str:
        """The value; empty when unset or empty."""
        return self.variables.get(name, "")

    @property
    def offline(self) -> bool:
        """Whether the network is forbidden."""
        names = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")
        return any(self.get(name).upper() in _TRUE_WORDS for name in names)

    @property
    def editor(self) -> str:
        """The command a person edits texts with."""
        return self.get("VISUAL") or self.get("EDITOR") or "vi"

    @property
    def remote(self) -> bool:
        """Whether the terminal is on another machine."""
        return bool(self.get("SSH_CONNECTION") or self.get("SSH_TTY"))

    @property
    def theme(self) -> str | None:
        """The theme that fits a terminal of few colours; None: it shows them all."""
        if self.get("COLORTERM").lower() in ("truecolor", "24bit"):
            return None
        background = self.get("COLORFGBG").rpartition(";")[2]
        return "ansi-light" if background in ("7", "15") else "ansi-dark"

    @property
    def display(self) -> bool:
        """Whether programs of this session reach a desktop and its clipboard."""
        local = sys.platform == "darwin" or self.get("DISPLAY")
        return bool(local or self.get("WAYLAND_DISPLAY")) and not self.remote


def child_environment(
    variables: Mapping[str, str], unset: tuple[str, ...]
) -> dict[str, str]:
    """This process's environment for a program it becomes.

    Args:
        variables: set or replaced.
        unset: left out.
    """
    kept = {name: value for name, value in os.environ.items() if name not in unset}
    return {**kept, **variables}


def prepare_hub(*, offline: bool) -> None:
    """Tell huggingface_hub, before it is imported, what it must not do.

    It sends no telemetry and looks for no newer version of itself; ``offline`` forbids
    every request. Child processes inherit this.
    """
    os.environ["HF_HUB_DISABLE_TELEMETRY"] = "1"
    os.environ["HF_HUB_DISABLE_UPDATE_CHECK"] = "1"
    if offline:
        os.environ["HF_HUB_OFFLINE"] = "1"
