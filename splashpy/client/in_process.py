# SPDX-License-Identifier: Apache-2.0
"""An engine host in this process: for ``run``, the Python API and tests."""

from __future__ import annotations

import atexit
import queue

from splashpy.client.client import EngineClient
from splashpy.errors import EngineDiedError, UsageError
from splashpy.host.host import Host
from splashpy.protocol import Command, Event, Failure
from splashpy.wire import check

_GRACE_SECONDS = 1.5


class InProcessClient(EngineClient):
    """Commands and events cross as objects; the host has its own two threads."""

    def __init__(self) -> None:
        self._events: queue.Queue[Event | None] = queue.Queue()
        self._fatal: Failure | None = None
        self._closed = self._ended = False
        self._host = Host(self._events.put, lambda: self._events.put(None))
        # The interpreter must not end while the engine thread is computing.
        atexit.register(self.close)

    def send(self, command: Command) -> None:
        """See :class:`~splashpy.client.client.EngineClient`."""
        if self._fatal or self._closed:
            raise self._death()
        try:
            checked = check(command)
        except ValueError as error:
            raise UsageError(str(error)) from None
        self._host.handle(checked)

    def receive(self, timeout: float | None = None) -> Event | None:
        """See :class:`~splashpy.client.client.EngineClient`."""
        if self._fatal:
            raise self._death()
        if self._ended:
            raise EOFError("the engine was closed")
        try:
            event = self._events.get(timeout=timeout)
        except queue.Empty:
            return None
        if event is None:
            self._ended = True
            raise EOFError("the engine was closed")
        if isinstance(event, Failure) and event.fatal:
            self._fatal = event
        return event

    def close(self, *, now: bool = False) -> None:
        """See :class:`~splashpy.client.client.EngineClient`."""
        if self._closed:
            return
        self._closed = True
        atexit.unregister(self.close)
        self._host.close(0 if now else _GRACE_SECONDS)

    def _death(self) -> EngineDiedError:
        if self._fatal is None:
            return EngineDiedError("the engine was closed")
        return EngineDiedError(self._fatal.message, why=self._fatal.why)
