# SPDX-License-Identifier: Apache-2.0
"""One row of the table of options."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from splashpy.cli.values import Parser


@dataclass(frozen=True, slots=True)
class Option:
    """One row of the table.

    Attributes:
        flags: spellings, short ones first.
        help: what it does, short enough for one line of a help page.
        metavar: what the help page calls the value; empty for a switch.
        parser: reads the value; None makes a switch.
        default: what happens without it, as the help page says it.
        variable: environment variable that stands in for the flag.
        repeat: may be given several times; the value is a tuple (a switch: a count).
        key: name of the value; empty where the flag names it, as it does unless another
            row has the same flag.
        rare: only on the page of ``--help-all``.
        hidden: on no page.
    """

    flags: str
    help: str
    metavar: str = ""
    parser: Parser | None = None
    default: str = field(default="", kw_only=True)
    variable: str = field(default="", kw_only=True)
    repeat: bool = field(default=False, kw_only=True)
    key: str = field(default="", kw_only=True)
    rare: bool = field(default=False, kw_only=True)
    hidden: bool = field(default=False, kw_only=True)

    @property
    def name(self) -> str:
        """Key of the value in what a command receives: ``max_context``."""
        return self.key or self.flag.lstrip("-").replace("-", "_")

    @property
    def flag(self) -> str:
        """The long spelling: ``--max-context``."""
        return self.flags.split()[-1]

    @property
    def absent(self) -> Any:
        """The value that says it was not given."""
        if self.parser is None:
            return 0 if self.repeat else False
        return () if self.repeat else None

    @property
    def spelling(self) -> str:
        """Flags and value as a help page shows them: ``-o, --output FILE``."""
        return " ".join((", ".join(self.flags.split()), self.metavar)).strip()
