# SPDX-License-Identifier: Apache-2.0
"""A file that appears when its content is complete, or not at all."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from splashpy.cli.output import Stream
from splashpy.errors import InputFileError, PermissionDeniedError


@dataclass(slots=True)
class Sink:
    """Where a result goes; set ``complete`` when all of it is written."""

    stream: Stream
    complete: bool = False


@contextlib.contextmanager
def into(
    path: str | None,
    stdout: Stream,
    *,
    before_exit: Callable[[Callable[[], None]], None],
) -> Iterator[Sink]:
    """Stdout, or a file written under a temporary name and renamed when complete.

    Args:
        path: the file; None is stdout. Something that is not a regular file, such as
            a named pipe, is written directly.
        stdout: stands in where there is no path.
        before_exit: takes what must be done when the process ends at once.

    Raises:
        InputFileError: the directory does not exist, or the path is one.
        PermissionDeniedError: the file cannot be written.
    """
    if path is None:
        yield Sink(stdout)
        return
    final = Path(path).expanduser()
    direct = final.exists() and not final.is_file()
    part = final if direct else final.with_name(f".{final.name}.{os.getpid()}.part")
    file = _open(part, path)
    try:
        if not direct:
            before_exit(lambda: part.unlink(missing_ok=True))
        sink = Sink(Stream(file, terminal=False, color=False))
        with file:
            yield sink
        if sink.complete and not direct:
            part.replace(final)
    finally:
        if not direct:
            part.unlink(missing_ok=True)


def _open(part: Path, path: str) -> TextIO:
    try:
        return part.open("w", encoding="utf-8", errors="replace")
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError) as error:
        raise InputFileError(
            f"--output {path} cannot be written", why=error.strerror or ""
        ) from None
    except OSError as error:
        raise PermissionDeniedError(
            f"--output {path} cannot be written", why=error.strerror or ""
        ) from None
