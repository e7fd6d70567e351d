# SPDX-License-Identifier: Apache-2.0
"""A failure as a person sees it: at most five lines, or one JSON document.

::

    error: what happened, with the values that matter  [E-CODE]
    why:   the reason, with numbers
    fix:   a command that helps
           another one
    more:  splashpy help E-CODE
"""

from __future__ import annotations

import errno
import re
import traceback
from pathlib import Path

import click

from splashpy.cli.commands import nearest
from splashpy.cli.output import Output, Stream, document
from splashpy.errors import (
    DiskSpaceError,
    InputFileError,
    InternalError,
    PermissionDeniedError,
    SplashError,
    UsageError,
)

MAX_LINES = 5
_FORBIDDEN = (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR)
_UNUSABLE = (errno.ENAMETOOLONG, errno.ELOOP, errno.EISDIR, errno.EEXIST)
_NUMBER = re.compile(r"\[Errno -?\d+\] ")  # Python's, before the words of the system


def lines(error: SplashError, stream: Stream) -> list[str]:
    """The error, its reason, as many fixes as fit, and where more is said."""
    label = stream.paint("error:", "error")
    shown = [f"{label} {_line(error.message, stream)}  [{error.code}]"]
    if error.why:
        # The last line of many is where a log or a traceback says what happened.
        shown.append(f"why:   {_line(error.why.splitlines()[-1], stream)}")
    room = MAX_LINES - 1 - len(shown)
    for number, fix in enumerate(error.fix[:room]):
        shown.append(f"{'fix:' if number == 0 else '':<6} {_line(fix, stream)}")
    return [*shown, f"more:  splashpy help {error.code}"]


def report(error: SplashError, output: Output, *, detail: str = "") -> None:
    """Print the error where it belongs: stderr, or stdout as JSON with --json."""
    if output.json or output.json_lines:
        fields = {
            "code": error.code,
            "message": error.message,
            "why": error.why,
            "fix": list(error.fix),
            "detail": detail,
        }
        told = document("error", {"error": fields}, one_line=output.json_lines)
        output.out.write(told)
        return
    output.err.write("\n".join(lines(error, output.err)) + "\n")


def explain(error: Exception, log: Path | None) -> SplashError:
    """The error for a person that stands for any exception.

    Args:
        error: what was raised.
        log: directory for the traceback of an unexpected one; None writes none.
    """
    if isinstance(error, InternalError) and isinstance(error.__cause__, Exception):
        return _unexpected(error.__cause__, log)
    if isinstance(error, SplashError):
        return error
    if isinstance(error, click.UsageError):
        return _usage(error)
    if isinstance(error, OSError) and error.errno in _FORBIDDEN:
        return PermissionDeniedError(
            f"{error.filename or 'a file'} cannot be written or read",
            why=error.strerror or "",
            fix=["set SPLASHPY_HOME to a directory you can write"],
        )
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        return DiskSpaceError(
            f"the disk of {error.filename or 'the output'} is full",
            fix=["splashpy list", "splashpy rm MODEL"],
        )
    if isinstance(error, OSError) and error.errno in _UNUSABLE:
        return InputFileError(
            f"{error.filename or 'a file'} cannot be used", why=error.strerror or ""
        )
    return _unexpected(error, log)


def _unexpected(error: Exception, log: Path | None) -> SplashError:
    written = _write_log(error, log)
    where = f"the traceback is in {written}" if written else "add --debug to see where"
    return InternalError(
        f"a bug in splashpy: {type(error).__name__}: {error}",
        why=f"{where}; nothing was sent anywhere",
        fix=["report it with that traceback and the output of splashpy -v --version"],
    )


def _write_log(error: Exception, log: Path | None) -> Path | None:
    """Write the traceback, replacing the last one; None where that is impossible."""
    if log is None:
        return None
    path = log / "error.log"
    try:
        log.mkdir(parents=True, exist_ok=True)
        text = "".join(traceback.format_exception(error))
        path.write_text(text, encoding="utf-8", errors="replace")
    except OSError:
        return None
    return path


def _usage(error: click.UsageError) -> UsageError:
    """What click complains about in our words, with the nearest option."""
    command = error.ctx.info_name if error.ctx else ""
    page = f"splashpy {command} --help" if command != "splashpy" else "splashpy --help"
    if isinstance(error, click.NoSuchOption) and error.ctx:
        flags = [
            flag
            for row in error.ctx.command.params
            for flag in row.opts
            if flag.startswith("--")
        ]
        near = nearest(error.option_name, flags)
        why = f"nearest: {', '.join(near)}" if near else ""
        return UsageError(
            f"there is no option {error.option_name}", why=why, fix=[page]
        )
    if isinstance(error, click.MissingParameter) and error.param and error.ctx:
        return UsageError(
            f"{error.param.make_metavar(error.ctx)} is missing", fix=[page]
        )
    text = error.format_message()
    return UsageError(text[:1].lower() + text[1:].rstrip("."), fix=[page])


def _line(text: str, stream: Stream) -> str:
    """One line, whatever the text holds."""
    return stream.safe(_NUMBER.sub("", " ".join(text.split())))
