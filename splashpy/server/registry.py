# SPDX-License-Identifier: Apache-2.0
"""Which servers run on this machine, so that other commands find them.

One small file for each port in ``<state>/run``. A file whose process is gone is removed
by whoever sees it.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path

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


def announce(state: Path, server: RunningServer) -> Path:
    """Write the file of a server, readable by its owner only; returns its path.

    Raises:
        PermissionDeniedError: it cannot be written.
    """
    directory = state / "run"
    path = directory / f"serve-{server.port}.json"
    partial = path.with_suffix(".partial")
    try:
        directory.mkdir(parents=True, exist_ok=True)
        partial.touch(mode=0o600)
        partial.write_text(json.dumps(asdict(server)), encoding="utf-8")
        partial.replace(path)
    except OSError as error:
        raise PermissionDeniedError(
            f"cannot write {path}: {error.strerror}",
            fix=["SPLASHPY_HOME=/a/writable/directory"],
        ) from None
    return path


def running(state: Path) -> list[RunningServer]:
    """The servers that run, by port; files of others are removed."""
    found = []
    for path in sorted((state / "run").glob("serve-*.json")):
        server = _read(path)
        if server is not None and alive(server.pid):
            found.append(server)
        else:
            path.unlink(missing_ok=True)
    return sorted(found, key=lambda server: server.port)


def alive(pid: int) -> bool:
    """Whether a process of this number runs."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _read(path: Path) -> RunningServer | None:
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        return RunningServer(**data)
    except (OSError, ValueError, TypeError):
        return None
