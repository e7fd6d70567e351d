# SPDX-License-Identifier: Apache-2.0
"""An engine host in a child process, joined by a socket pair.

The interface survives whatever happens to the engine: a crash of the child ends in one
``EngineDiedError`` with the last lines of its log.
"""

from __future__ import annotations

import contextlib
import queue
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path

from splashpy.client.client import EngineClient
from splashpy.errors import EngineDiedError, PermissionDeniedError
from splashpy.protocol import Command, Event, Shutdown
from splashpy.wire import event_from_line, to_line

LOG_BYTES = 5_000_000  # a log beyond this is put aside at the next start
LOG_KEPT = 3
_LOG_LINES_SHOWN = 20
_GRACE_SECONDS = 1.5
_TERMINATE_SECONDS = 2.0


class ChildClient(EngineClient):
    """Owns one engine process; made by :meth:`spawn`."""

    def __init__(
        self,
        process: subprocess.Popen[bytes],
        channel: socket.socket,
        log: Path,
        log_start: int,
    ):
        self.process = process
        self.log = log
        self._channel = channel
        self._events: queue.Queue[Event | None] = queue.Queue()
        self._sending = threading.Lock()
        self._log_start = log_start
        self._asked_to_end = self._closed = self._ended = False
        threading.Thread(target=self._read, name="splashpy-events", daemon=True).start()

    @classmethod
    def spawn(cls, log: Path, env: Mapping[str, str] | None = None) -> ChildClient:
        """Start an engine process; returns before it is up.

        Args:
            log: file that takes whatever the process prints; kept below 5 MB each,
                three old ones beside it.
            env: environment of the process; None inherits.

        Raises:
            PermissionDeniedError: the log cannot be written.
            EngineDiedError: the system starts no further process.
        """
        with _open_log(log) as output:
            log_start = output.tell()
            ours, theirs = socket.socketpair()
            with theirs:
                try:
                    process = subprocess.Popen(
                        [sys.executable, "-m", "splashpy.host", str(theirs.fileno())],
                        stdin=subprocess.DEVNULL,
                        stdout=output,
                        stderr=output,
                        pass_fds=[theirs.fileno()],
                        # Ctrl-C at the terminal is the interface's to handle.
                        start_new_session=True,
                        env=None if env is None else dict(env),
                    )
                except OSError as error:
                    ours.close()
                    raise EngineDiedError(
                        f"the engine process cannot be started: {error.strerror}"
                    ) from None
        return cls(process, ours, log, log_start)

    def send(self, command: Command) -> None:
        """See :class:`~splashpy.client.client.EngineClient`."""
        if isinstance(command, Shutdown):
            self._asked_to_end = True
        try:
            with self._sending:
                self._channel.sendall(to_line(command))
        except OSError:
            raise self._death() from None

    def receive(self, timeout: float | None = None) -> Event | None:
        """See :class:`~splashpy.client.client.EngineClient`."""
        if not self._ended:
            try:
                event = self._events.get(timeout=timeout)
            except queue.Empty:
                return None
            if event is not None:
                return event
            self._ended = True
        if self._asked_to_end:
            raise EOFError("the engine was closed")
        raise self._death()

    def close(self, *, now: bool = False) -> None:
        """See :class:`~splashpy.client.client.EngineClient`."""
        if self._closed:
            return
        self._closed = self._asked_to_end = True
        if now:
            self.process.kill()
        else:
            self._ask_to_end()
        self.process.wait()
        self._channel.close()

    def _ask_to_end(self) -> None:
        # On a thread of its own: an engine that no longer reads must not keep us here.
        threading.Thread(target=self._say_goodbye, daemon=True).start()
        for stop, seconds in (
            (self.process.terminate, _GRACE_SECONDS),
            (self.process.kill, _TERMINATE_SECONDS),
        ):
            try:
                self.process.wait(seconds)
            except subprocess.TimeoutExpired:
                stop()

    def _say_goodbye(self) -> None:
        line = to_line(Shutdown(grace_ms=int(1e3 * _GRACE_SECONDS)))
        with contextlib.suppress(OSError), self._sending:
            self._channel.sendall(line)

    def _read(self) -> None:
        try:
            with self._channel.makefile("rb") as lines:
                for line in lines:
                    event = event_from_line(line)
                    if event is not None:
                        self._events.put(event)
        except (OSError, ValueError):
            pass  # a line cut off by a crash; the end below says the rest
        self._events.put(None)

    def _death(self) -> EngineDiedError:
        try:
            status = self.process.wait(_TERMINATE_SECONDS)
        except subprocess.TimeoutExpired:
            status = None
        return EngineDiedError(
            f"the engine process ended ({_describe(status)})",
            why=_last_lines(self.log, self._log_start),
            fix=["restart the engine", f"the whole log: {self.log}"],
        )


def _describe(status: int | None) -> str:
    if status is None:
        return "its channel broke"
    if status < 0:
        return f"killed by signal {-status}"
    return f"exit status {status}"


def _open_log(log: Path):
    try:
        log.parent.mkdir(parents=True, exist_ok=True)
        if log.exists() and log.stat().st_size > LOG_BYTES:
            for number in range(LOG_KEPT - 1, 0, -1):
                older = log.with_suffix(f".{number}.log")
                if older.exists():
                    older.replace(log.with_suffix(f".{number + 1}.log"))
            log.replace(log.with_suffix(".1.log"))
        return log.open("ab")
    except OSError as error:
        raise PermissionDeniedError(
            f"cannot write {log}: {error.strerror}",
            fix=["SPLASHPY_HOME=/a/writable/directory"],
        ) from None


def _last_lines(log: Path, start: int) -> str:
    """The end of what this process printed, from byte ``start`` of the log."""
    try:
        with log.open("rb") as file:
            file.seek(start)
            text = file.read().decode(errors="replace")
    except OSError:
        return ""
    return "\n".join(text.splitlines()[-_LOG_LINES_SHOWN:])
