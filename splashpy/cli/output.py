# SPDX-License-Identifier: Apache-2.0
"""Where words go: results to stdout, everything else to stderr.

stdout is the product and may be piped; stderr carries notes, warnings, progress,
questions and errors. Text that did not come from splashpy itself loses its control
characters where it reaches a terminal, and stays as it is in a pipe.
"""

from __future__ import annotations

import io
import json
import shutil
import sys
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, TextIO

from splashpy.cli.options import Environment
from splashpy.sanitize import sanitize

SGR = {
    "error": "1;31",
    "warning": "33",
    "dim": "2",
    "accepted": "32",
    "target": "4",
    "lookup": "36",
}
"""Sixteen-colour codes by meaning, so that a terminal's own palette decides."""


@dataclass(frozen=True, slots=True)
class Stream:
    """One output stream and what it may show.

    Attributes:
        file: where it writes.
        terminal: a person may be looking at it.
        color: colours may be used.
    """

    file: TextIO
    terminal: bool
    color: bool

    @classmethod
    def open(cls, file: TextIO | None, color: str, environment: Environment) -> Stream:
        """Wrap stdout or stderr; a closed one swallows what is written.

        Args:
            file: None where the process was started without this stream.
            color: ``auto``, ``always`` or ``never``.
            environment: the rule of ``auto`` reads NO_COLOR, FORCE_COLOR and TERM.
        """
        if file is None:
            return cls(io.StringIO(), terminal=False, color=False)
        terminal = file.isatty()
        if isinstance(file, io.TextIOWrapper):
            encoding = file.encoding if terminal else "utf-8"
            file.reconfigure(encoding=encoding, errors="replace")
        if color == "auto":
            suits = terminal and environment.get("TERM") != "dumb"
            wanted = suits or bool(environment.get("FORCE_COLOR"))
            refused = bool(environment.get("NO_COLOR")) or not wanted
            color = "never" if refused else "always"
        return cls(file, terminal=terminal, color=color == "always")

    def write(self, text: str) -> None:
        """Write and flush; text from elsewhere belongs through :meth:`safe` first.

        Raises:
            BrokenPipeError: nobody reads any more.
        """
        self.file.write(text)
        self.file.flush()

    def safe(self, text: str) -> str:
        """Text without control characters on a terminal, unchanged in a pipe."""
        return sanitize(text) if self.terminal else text

    def paint(self, text: str, meaning: str) -> str:
        """The text in the colour of its meaning, where colours may be used."""
        return f"\x1b[{SGR[meaning]}m{text}\x1b[0m" if self.color else text


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """The two streams of one command, and how talkative it is.

    Attributes:
        out: stdout.
        err: stderr.
        json: the result is one JSON document.
        json_lines: the result is one JSON object for each event.
        quiet: no notes, no progress.
        verbose: how often -v was given.
        columns: width of a table on a terminal.
    """

    out: Stream
    err: Stream
    json: bool = False
    json_lines: bool = False
    quiet: bool = False
    verbose: int = 0
    columns: int = 80

    @classmethod
    def of(cls, flags: Mapping[str, Any], environment: Environment) -> Output:
        """Streams of this process, as the common options want them."""
        color = flags.get("color") or "auto"
        width = environment.get("COLUMNS")
        return cls(
            out=Stream.open(sys.stdout, color, environment),
            err=Stream.open(sys.stderr, color, environment),
            json=bool(flags.get("json")),
            json_lines=bool(flags.get("json_stream")),
            quiet=bool(flags.get("quiet")),
            verbose=flags.get("verbose") or 0,
            columns=int(width)
            if width.isdigit() and int(width) > 0
            else shutil.get_terminal_size().columns,
        )

    def result(self, text: str) -> None:
        """A line of the result."""
        self.out.write(f"{self.out.safe(text)}\n")

    def note(self, text: str) -> None:
        """A line a person may want to know; not with --quiet."""
        if not self.quiet:
            self.err.write(f"{self.err.safe(text)}\n")

    def warn(self, text: str) -> None:
        """A line a person should know; not with --quiet."""
        if not self.quiet:
            label = self.err.paint("warning:", "warning")
            self.err.write(f"{label} {self.err.safe(text)}\n")

    def document(self, command: str, fields: Mapping[str, Any]) -> None:
        """The result as one JSON document with its schema's name first."""
        self.out.write(document(command, fields))

    def table(
        self, heads: Sequence[str], rows: Sequence[Sequence[str]], *, wide: bool = False
    ) -> None:
        """Rows under heads: aligned on a terminal, tab-separated in a pipe."""
        lines = (
            aligned(heads, rows, None if wide else self.columns)
            if self.out.terminal
            else ["\t".join(row) for row in (heads, *rows)]
        )
        for line in lines:
            self.result(line)


def document(command: str, fields: Mapping[str, Any], *, one_line: bool = False) -> str:
    """``{"schema": "splashpy.<command>/1", ...}`` and a newline."""
    content = {"schema": f"splashpy.{command}/1", **fields}
    text = json.dumps(content, ensure_ascii=False, indent=None if one_line else 2)
    # A lone surrogate (from an undecodable file name) cannot be written as UTF-8.
    return text.encode("utf-8", errors="replace").decode("utf-8") + "\n"


def aligned(
    heads: Sequence[str], rows: Sequence[Sequence[str]], columns: int | None
) -> list[str]:
    """Lines of a table; the first column gives way when they would be too long."""
    table = [tuple(heads), *(tuple(row) for row in rows)]
    widths = [max(map(cells, column)) for column in zip(*table, strict=True)]
    total = sum(widths) + 2 * (len(widths) - 1)
    if columns is not None and total > columns:
        widths[0] = max(widths[0] - (total - columns), min(12, widths[0]))
    lines = ["  ".join(map(fit, row, widths)).rstrip() for row in table]
    return lines if columns is None else [cut(line, columns) for line in lines]


def fit(cell: str, width: int) -> str:
    """A text cut or filled up to exactly ``width`` columns."""
    shown = cut(cell, width)
    return shown + " " * (width - cells(shown))


def cells(text: str) -> int:
    """Columns of a terminal a text takes: wide characters two, marks none."""
    return len(text) if text.isascii() else sum(map(_cells, text))


def _cells(character: str) -> int:
    if unicodedata.category(character) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def cut(text: str, width: int) -> str:
    """As much of a text as ``width`` columns hold, with … for the rest."""
    if cells(text) <= width:
        return text
    ends = accumulate(map(_cells, text))
    return text[: sum(end < width for end in ends)] + "…"
