# SPDX-License-Identifier: Apache-2.0
"""Questions to a person; asked only where a person can answer."""

from __future__ import annotations

import sys

from splashpy.cli.invocation import Invocation
from splashpy.errors import UsageError


def confirm(invocation: Invocation, question: str) -> bool:
    """Ask for consent; no answer means no.

    Raises:
        UsageError: nobody can be asked and --yes was not given.
    """
    if invocation.given["yes"]:
        return True
    output = invocation.output
    keyboard = sys.stdin
    listening = keyboard is not None and keyboard.isatty() and output.err.terminal
    if keyboard is None or output.json or not listening:
        raise UsageError(
            f"{question} nobody is here to answer",
            why="standard input and stderr must be a terminal to ask",
            fix=["add --yes to accept"],
        )
    output.err.write(f"{question} [y/N] ")
    return keyboard.readline().strip().lower() in ("y", "yes")
