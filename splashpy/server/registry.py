# SPDX-License-Identifier: Apache-2.0
"""Which servers run on this machine, so that other commands find them.

One small file for each port in ``<state>/run``, which its server keeps locked while it
runs. A file that nobody holds any more is removed by whoever sees it.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO

from splashpy.errors import PermissionDeniedError


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningServer:
    """One server.

    Attributes:
        port: it listens at.
        host: address it listens at.
        pid: of its process.
        model: it serves.
        version: of splashpy.
        started: seconds since 1970.
    """

    port: int
    host: str
    pid: int
    model: str
    version: str
    started: float

    @property
    def url(self) -> str:
        """Where clients on this machine reach it."""
        local = self.host in ("0.0.0.0", "::", "localhost")
        host = "127.0.0.1" if local else self.host
        return f"http://{f'[{host}]' if ':' in host else host}:{self.port}"


@dataclass(frozen=True, slots=True)
class Announcement:
    """The file of a server that runs; nobody else may lock it until its process ends.

    Attributes:
        path: of the file.
        file: open, with the lock.
    """

    path: Path
    file: IO[str]

    def withdraw(self) -> None:
        """Say that the server has ended."""
        self.path.unlink(missing_ok=True)
        self.file.close()


def announce(state: Path, server: RunningServer) -> Announcement:
    """Write the file of a server, readable by its owner only.

    Raises:
        PermissionDeniedError: it cannot be written.
    """
    directory = state / "run"
    path = directory / f"serve-{server.port}.json"
    partial = path.with_suffix(".partial")
    try:
        directory.mkdir(parents=True, exist_ok=True)
        partial.unlink(missing_ok=True)
        wanted = os.O_WRONLY | os.O_CREAT | os.O_EXCL
        file = os.fdopen(os.open(partial, wanted, 0o600), "w", encoding="utf-8")
        with contextlib.suppress(OSError):  # a file system without locks
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        json.dump(asdict(server), file)
        file.flush()
        partial.replace(path)
    except OSError as error:
        raise PermissionDeniedError(
            f"cannot write {path}: {error.strerror}",
            fix=["SPLASHPY_HOME=/a/writable/directory"],
        ) from None
    return Announcement(path, file)


def running(state: Path) -> list[RunningServer]:
    """The servers that run, by port; files of others are removed."""
    paths = sorted((state / "run").glob("serve-*.json"))
    found = [server for path in paths if (server := _read(path)) is not None]
    return sorted(found, key=lambda server: server.port)


def _read(path: Path) -> RunningServer | None:
    """The server of a file; None where it has ended, or is one of another version."""
    try:
        with path.open(encoding="utf-8") as file:
            if not _is_held(file):
                path.unlink(missing_ok=True)
                return None
            return RunningServer(**json.load(file))
    except (OSError, ValueError, TypeError):
        return None


def _is_held(file: IO[str]) -> bool:
    """Whether a server has the lock; its number alone may be another process's now."""
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    return False
