# SPDX-License-Identifier: Apache-2.0
"""One builder at a time: a lock that vanishes with its process."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from splashpy.package.progress import Cancelled, CancelledError, Progress
from splashpy.protocol import LoadProgress

_POLL_SECONDS = 0.2  # a person sees no delay, and a waiting builder costs nothing


@contextmanager
def locked(path: Path, progress: Progress, cancelled: Cancelled) -> Iterator[None]:
    """Hold the lock file ``path``; wait while another process holds it.

    The kernel releases it when the holder ends, however it ends. Waiting is reported
    once, with the process id of the holder.

    Raises:
        CancelledError: ``cancelled`` said yes while waiting.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    told = False
    while True:
        with path.open("a+", encoding="utf-8") as file:
            while not _try(file):
                if cancelled():
                    raise CancelledError
                if not told:
                    waiting = f"waiting for {_holder(file)}"
                    progress(LoadProgress(phase="resolve", item=waiting))
                    told = True
                time.sleep(_POLL_SECONDS)
            # The holder may have deleted the file; the next builder makes a new one.
            if not _is_at(file, path):
                continue
            file.truncate(0)
            file.write(str(os.getpid()))
            file.flush()
            yield
            return


def _try(file: IO[str]) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _is_at(file: IO[str], path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except FileNotFoundError:
        return False


def _holder(file: IO[str]) -> str:
    file.seek(0)
    pid = file.read().strip()
    return f"process {pid}" if pid else "another process"
