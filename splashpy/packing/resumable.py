# SPDX-License-Identifier: Apache-2.0
"""A package appears when it is complete; what an interrupted call wrote is kept.

The files are in ``DIR.partial`` until then. ``.DIR.plan`` beside it says what they are
made for, so that no call goes on with the files of another.
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator
from pathlib import Path

from splashpy.package.disk_space import bytes_below, check_free
from splashpy.package.progress import Cancelled, Progress
from splashpy.packing.build import publish, write_error
from splashpy.packing.build_lock import locked


@contextlib.contextmanager
def resumable(
    output: Path, made_for: str, progress: Progress, cancelled: Cancelled
) -> Iterator[Path]:
    """A directory to write to; it becomes ``output`` where nothing was raised.

    Otherwise its files stay for the next call with the same inputs.

    Args:
        output: absolute path of the package.
        made_for: identifies the inputs.
        progress: phase ``prepare`` while another process writes the same package.
        cancelled: polled meanwhile.

    Raises:
        DiskSpaceError, PermissionDeniedError: it cannot be written.
        CancelledError: ``cancelled`` said yes.
    """
    partial = _partial(output)
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
        lock = output.with_name(f".{output.name}.lock")
        mark = output.with_name(f".{output.name}.plan")
        with locked(lock, progress, cancelled):
            _begin(partial, mark, made_for)
            yield partial
            publish(partial, output)
            mark.unlink()
            lock.unlink(missing_ok=True)
    except OSError as error:
        raise write_error(error, output) from error


def check_room(output: Path, needed: int) -> None:
    """Check the disk for what is still to be written.

    Args:
        output: directory of the package.
        needed: bytes of all of it.

    Raises:
        DiskSpaceError: not enough room.
    """
    # What an interrupted call left is kept, or makes room before anything is written.
    left = bytes_below(_partial(output))
    check_free(f"packing {output.name}", (output.parent, max(0, needed - left)))


def _partial(output: Path) -> Path:
    """Where the files of a package are until it is complete."""
    return output.with_name(f"{output.name}.partial")


def _begin(partial: Path, mark: Path, made_for: str) -> None:
    """Keep what an interrupted call for the same package wrote; drop anything else.

    ``mark`` says what the files in ``partial`` are made for.
    """
    with contextlib.suppress(OSError):
        if partial.is_dir() and mark.read_text(encoding="ascii") == made_for:
            return
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    mark.write_text(made_for, encoding="ascii")
