# SPDX-License-Identifier: Apache-2.0
"""The threads between an interface and an engine, so that neither waits for the other.

The reader connects, asks for the model, and collects what arrives; the interface is
woken once per batch and takes everything there is. While something is wanted it also
watches: an engine that shows no sign of life for some seconds, or says of itself that
its model will not come back, is reported as stuck. The writer hands commands over,
because an engine that does not read makes whoever writes to it wait.
"""

from __future__ import annotations

import queue
import threading
import time
from collections import deque
from collections.abc import Callable

from splashpy.client.client import EngineClient
from splashpy.errors import (
    EngineDiedError,
    EngineStuckError,
    InternalError,
    SplashError,
)
from splashpy.protocol import (
    Command,
    Done,
    EngineHello,
    Event,
    Failure,
    Generate,
    Hello,
    Load,
    Ping,
    Pong,
    Ready,
)

PING_SECONDS = 2.0
STUCK_SECONDS = 10.0
IDLE_SECONDS = 30.0
"""Between two looks at an engine of which nothing is wanted."""

Arrival = tuple[float, Event | SplashError]
"""When something came, in seconds of ``time.perf_counter``, and what it was."""


class EngineLink:
    """One engine, from start to end.

    Args:
        connect: returns a started client; may take its time.
        load: the model to ask for.
        wake: called from the thread when something arrived after a silence.
        previous: a link whose engine is ended before this one starts.
        stuck_seconds: of silence, after which the engine is reported as stuck.
    """

    def __init__(
        self,
        connect: Callable[[], EngineClient],
        load: Load,
        wake: Callable[[], object],
        *,
        previous: EngineLink | None = None,
        stuck_seconds: float = STUCK_SECONDS,
    ):
        self._connect = connect
        self._load = load
        self._wake = wake
        self._previous = previous
        self._watch = _Watch(time.perf_counter(), stuck_seconds)
        self._arrived: deque[Arrival] = deque()
        self._client: EngineClient | None = None
        self._outgoing: queue.SimpleQueue[Command | None] = queue.SimpleQueue()
        self._closing = threading.Event()

    def start(self) -> None:
        """Begin to connect and listen."""
        threading.Thread(target=self._run, name="engine-reader", daemon=True).start()

    def send(self, command: Command) -> None:
        """Hand a command to the engine, in order; its death arrives like an event."""
        self._watch.asked(command, time.perf_counter())
        self._outgoing.put(command)

    def take(self) -> list[Arrival]:
        """Everything that arrived since the last time."""
        taken = []
        while self._arrived:
            taken.append(self._arrived.popleft())
        return taken

    def close(self, *, now: bool = False) -> None:
        """End the engine, politely or at once. Waits until it is gone."""
        self._closing.set()
        self._outgoing.put(None)
        if self._client is not None:
            self._client.close(now=now)

    # --- the threads --------------------------------------------------------------

    def _run(self) -> None:
        try:
            if self._previous is not None:
                self._previous.close(now=True)
                self._previous = None
            client = self._connect()
            self._client = client
            if self._closing.is_set():
                client.close(now=True)
                return
            self.send(Hello())
            self.send(self._load)
            threading.Thread(
                target=self._write, args=(client,), name="engine-writer", daemon=True
            ).start()
            self._listen(client)
        except SplashError as error:
            self._put(error)
        except EOFError:
            self._put(EngineDiedError("the engine ended"))
        except Exception as error:  # noqa: BLE001 - a thread that dies silently hangs all
            self._put(InternalError(f"the engine link failed: {error!r}"))

    def _write(self, client: EngineClient) -> None:
        while (command := self._outgoing.get()) is not None:
            try:
                client.send(command)
            except EngineDiedError:
                return  # the reader learns of it too, and reports it once

    def _listen(self, client: EngineClient) -> None:
        watch = self._watch
        while not self._closing.is_set():
            event = client.receive(IDLE_SECONDS if watch.idle else PING_SECONDS)
            now = time.perf_counter()
            if event is not None and watch.tells(event):
                self._put(event)
            if event is not None:
                watch.heard(event, now)
            if watch.idle:
                continue
            if watch.ping_due(now):
                self._outgoing.put(Ping())
            if why := watch.fell_silent(now):
                self._put(EngineStuckError("the engine does not answer", why=why))

    def _put(self, arrived: Event | SplashError) -> None:
        if self._closing.is_set():
            return
        self._arrived.append((time.perf_counter(), arrived))
        if len(self._arrived) == 1:
            self._wake()


class _Watch:
    """Whether the engine still speaks, while something is wanted of it."""

    def __init__(self, now: float, stuck_seconds: float = STUCK_SECONDS) -> None:
        self._stuck_seconds = stuck_seconds
        self._greeted = False
        self._heard_at = now
        self._pinged_at = now
        self._hangs = ""
        self._open: set[str] = set()  # requests; a load has no id
        self.stuck = False

    @property
    def idle(self) -> bool:
        """Whether nothing is wanted, so that silence means nothing."""
        return not self._open and not self.stuck

    def asked(self, command: Command, now: float) -> None:
        """Something may be wanted from now on; silence before counts no more."""
        if not isinstance(command, Load | Generate):
            return
        if self.idle:
            self._heard_at = now
        self._open.add(command.id if isinstance(command, Generate) else "")

    def tells(self, event: Event) -> bool:
        """Whether an event is worth passing on; of signs of life the first one."""
        if not isinstance(event, Pong):
            return True
        return self.stuck and not event.stuck

    def heard(self, event: Event, now: float) -> None:
        self._greeted = self._greeted or isinstance(event, EngineHello)
        self._heard_at = now
        if isinstance(event, Done | Failure):
            self._open.discard(event.id)
        elif isinstance(event, Ready):
            self._open.discard("")
        elif isinstance(event, Pong):
            self._hangs = event.stuck
        self.stuck = self.stuck and bool(self._hangs)

    def ping_due(self, now: float) -> bool:
        due = self._greeted and now - self._pinged_at >= PING_SECONDS
        if due:
            self._pinged_at = now
        return due

    def fell_silent(self, now: float) -> str:
        """Why it is stuck, when it has just become so."""
        why = self._hangs
        if self._greeted and now - self._heard_at >= self._stuck_seconds:
            why = f"no sign of life for {self._stuck_seconds:.0f} seconds"
        became, self.stuck = why and not self.stuck, bool(why)
        return why if became else ""
