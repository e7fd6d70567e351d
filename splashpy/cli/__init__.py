# SPDX-License-Identifier: Apache-2.0
"""Words on a command line become a call; exit codes.

It knows flags, streams and signals, no arrays. Read ``__init__.py`` (main) and
``options.py`` (the one table of options) first.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Sequence

from splashpy.cli.commands import overview

EXIT_INTERRUPTED = 130
EXIT_CLOSED_PIPE = 141


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code.

    Everything that goes wrong is told in a few lines; a traceback appears only with
    ``--debug``.

    Args:
        argv: words after the program's name; None takes them from the process, which
            then ends with this call if an engine cannot be stopped.
    """
    words = list(sys.argv[1:] if argv is None else argv)
    try:
        code = _run(words)
        if sys.stdout is not None:
            sys.stdout.flush()
    except BrokenPipeError:
        code = EXIT_CLOSED_PIPE
    except KeyboardInterrupt as error:
        code = error.args[0] if error.args else EXIT_INTERRUPTED
    except Exception as error:  # noqa: BLE001 - the top of the program
        code = _fail(error, words)
    _give_up_stdout_if_broken()
    if argv is None:
        _leave_a_running_engine(code)
    return code


def _run(words: list[str]) -> int:
    if words in ([], ["-h"], ["--help"]):
        # Without importing click, which takes longer than all the rest together.
        print(overview())
        return 0
    import click

    from splashpy.cli.program import PROGRAM

    try:
        with PROGRAM.make_context("splashpy", words) as context:
            return PROGRAM.invoke(context) or 0
    except click.exceptions.Exit as done:
        return done.exit_code


def _fail(error: Exception, words: list[str]) -> int:
    """Tell about an exception and return its exit code."""
    from splashpy.cli.failure import explain, report
    from splashpy.cli.options import Environment
    from splashpy.cli.output import Output
    from splashpy.paths import Paths

    # What a full disk left in the buffer must not fail again when the error is told.
    _give_up_stdout_if_broken()
    flags = _common_flags(words)
    if flags["debug"]:
        import traceback

        traceback.print_exception(error)
    environment = Environment.read()
    output = Output.of(flags, environment)
    told = explain(error, Paths.default(environment.variables).log)
    with contextlib.suppress(OSError):
        report(told, output)
    return told.exit_code


def _leave_a_running_engine(code: int) -> None:
    """End the process while its engine thread is inside MLX.

    Such a thread cannot be interrupted, and the interpreter's way of ending it would
    abort the process.
    """
    threading = sys.modules.get("threading")
    threads = threading.enumerate() if threading else ()
    if any(thread.name == "splashpy-engine" for thread in threads):
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.flush()
        os._exit(code)


def _common_flags(words: list[str]) -> dict[str, str | bool]:
    """What decides how an error is told, even when the words could not be parsed."""
    options = words[: words.index("--")] if "--" in words else words
    joined = "\n".join(options).replace("=", "\n").split("\n")
    at = joined.index("--color") + 1 if "--color" in joined else len(joined)
    color = joined[at] if at < len(joined) else "auto"
    return {
        "json": "--json" in options,
        "json_stream": "--json-stream" in options,
        "debug": "--debug" in options,
        "color": color if color in ("always", "never") else "auto",
    }


def _give_up_stdout_if_broken() -> None:
    """Let the interpreter's last flush of a closed pipe or full disk go nowhere."""
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
