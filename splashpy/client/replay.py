# SPDX-License-Identifier: Apache-2.0
"""An engine that plays a recording, and the recorder that makes one.

A recording is the event language as it crosses to an interface, one JSON object per
line, each with an extra field ``t``: seconds since the recording began. Events before
the first request answer ``Hello`` and ``Load``; the first ``Generate`` is answered by
the first recorded request, the second by the second, and so on from the start again.

Used for tests without a model, for demonstrations, and to look at a reported run.
"""

from __future__ import annotations

import dataclasses
import json
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from splashpy.client.client import EngineClient
from splashpy.errors import EngineDiedError, UsageError
from splashpy.protocol import (
    Cancel,
    Command,
    Count,
    Cycle,
    Done,
    EngineHello,
    Event,
    Failure,
    Generate,
    Hello,
    Load,
    Ping,
    Pong,
    Prefill,
    Shutdown,
    Spec,
    Timing,
    Usage,
)
from splashpy.wire import event_from_line, to_json

Played = Event | EngineDiedError
"""What a recording may hold: an event, or the death of the engine (tests only)."""


@dataclass(frozen=True, slots=True)
class Timed:
    """Something that happened ``t`` seconds after the recording began."""

    t: float
    event: Played


class ReplayClient(EngineClient):
    """Answers commands from a recording.

    Args:
        source: a recording's path, or what it would hold.
        speed: 2 plays twice as fast; ``math.inf`` never waits.

    Raises:
        UsageError: the file cannot be read, or a line is not an event.
    """

    def __init__(self, source: Path | Iterable[Timed], *, speed: float = 1.0):
        timed = read_recording(source) if isinstance(source, Path) else list(source)
        self._hello, self._load, self._requests = _split(timed)
        self._speed = speed
        self._played = 0
        self._running: _Running | None = None
        self._due: deque[tuple[float, Played]] = deque()
        self._changed = threading.Condition()
        self._ended = False
        self._dead: EngineDiedError | None = None

    def send(self, command: Command) -> None:
        """Put the recorded answer to a command on the schedule."""
        with self._changed:
            if self._dead is not None:
                raise self._dead
            if isinstance(command, Cancel):
                self._cancel(command.id)
            elif isinstance(command, Ping):
                self._due.appendleft((0.0, Pong(n=command.n)))
            elif isinstance(command, Shutdown):
                self._ended = True
            else:
                self._schedule(self._answer(command))
            self._changed.notify_all()

    def receive(self, timeout: float | None = None) -> Event | None:
        """The next event when its time has come."""
        end = None if timeout is None else time.perf_counter() + timeout
        with self._changed:
            while True:
                now = time.perf_counter()
                if self._dead is not None:
                    raise self._dead
                if self._ended:
                    raise EOFError
                if self._due and self._due[0][0] <= now:
                    return self._deliver(self._due.popleft()[1])
                moments = [self._due[0][0]] if self._due else []
                moments += [] if end is None else [end]
                if end is not None and now >= end:
                    return None
                self._changed.wait(min(moments) - now if moments else None)

    def close(self, *, now: bool = False) -> None:
        """Stop playing; a waiting ``receive`` ends."""
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def _answer(self, command: Command) -> list[Timed]:
        if isinstance(command, Hello):
            return self._hello
        if isinstance(command, Load):
            return self._load
        if isinstance(command, Count):
            why = "counting needs the model's tokenizer"
            failure = Failure(
                id=command.id,
                code="E-USAGE",
                message="a recording cannot count tokens",
                why=why,
            )
            return [Timed(0.0, failure)]
        if isinstance(command, Generate) and self._requests:
            request = self._requests[self._played % len(self._requests)]
            self._played += 1
            return [_with_id(timed, command.id) for timed in request]
        if isinstance(command, Generate):
            failure = Failure(
                id=command.id, code="E-USAGE", message="the recording holds no answer"
            )
            return [Timed(0.0, failure)]
        return []

    def _schedule(self, answer: list[Timed]) -> None:
        start = time.perf_counter()
        if self._due:  # one request at a time, as in the engine
            start = max(start, self._due[-1][0])
        self._due += [(start + item.t / self._speed, item.event) for item in answer]

    def _deliver(self, event: Played) -> Event:
        if isinstance(event, EngineDiedError):
            self._dead = event
            self._due.clear()
            raise event
        request_id = getattr(event, "id", "")
        if request_id and (self._running is None or self._running.id != request_id):
            self._running = _Running(request_id)
        if self._running is not None:
            self._running.note(event)
        return event

    def _cancel(self, request_id: str) -> None:
        kept = [due for due in self._due if getattr(due[1], "id", "") != request_id]
        if len(kept) == len(self._due):
            return  # it already ended; its Done is on the way or was read
        running = self._running
        if running is None or running.id != request_id:
            running = _Running(request_id)
        self._due = deque([(0.0, running.cancelled()), *kept])


class Recorder(EngineClient):
    """Passes everything through to another client and writes down the events.

    Args:
        client: the client whose events are recorded.
        path: a new file; it holds the conversation's text, so only its owner may
            read it.
        clock: seconds of a steady clock.

    Raises:
        FileExistsError: there is already a file of this name.
    """

    def __init__(
        self,
        client: EngineClient,
        path: Path,
        *,
        clock: Callable[[], float] = time.perf_counter,
    ):
        self._client = client
        path.touch(mode=0o600, exist_ok=False)
        # Line by line, so a recording survives the crash it was made to show.
        self._file = path.open("w", buffering=1, encoding="utf-8", errors="replace")
        self._lock = threading.Lock()
        self._clock = clock
        self._start = clock()

    def send(self, command: Command) -> None:
        """Hand a command over."""
        self._client.send(command)

    def receive(self, timeout: float | None = None) -> Event | None:
        """The next event, written down."""
        event = self._client.receive(timeout)
        if event is not None and not isinstance(event, Pong):
            line = recorded_line(Timed(self._clock() - self._start, event))
            with self._lock:
                if not self._file.closed:
                    self._file.write(line)
        return event

    def close(self, *, now: bool = False) -> None:
        """End the host and finish the file."""
        self._client.close(now=now)
        with self._lock:
            self._file.close()


def recorded_line(timed: Timed) -> str:
    """One line of a recording, newline included.

    Raises:
        ValueError: the death of an engine has no place in a file.
    """
    if isinstance(timed.event, EngineDiedError):
        raise ValueError("only events can be written")
    data = to_json(timed.event) | {"t": round(timed.t, 4)}
    return json.dumps(data, ensure_ascii=False, separators=(",", ":")) + "\n"


def read_recording(path: Path) -> list[Timed]:
    """What a recording holds, in order.

    Raises:
        UsageError: the file cannot be read, or a line is not an event.
    """
    try:
        return list(_timed_lines(path))
    except OSError as error:
        raise UsageError(f"cannot read {path}", why=error.strerror or "") from None


def _timed_lines(path: Path) -> Iterator[Timed]:
    latest = 0.0
    for number, line in enumerate(path.read_bytes().splitlines(), start=1):
        if not line.strip():
            continue
        try:
            event = event_from_line(line)
            latest = max(latest, float(json.loads(line).get("t", latest)))
        except (ValueError, TypeError) as error:
            raise UsageError(
                f"{path}, line {number} is not a recorded event",
                why=str(error),
                fix=("Record a session again with this version of splashpy.",),
            ) from None
        if event is not None:
            yield Timed(latest, event)


def _split(timed: list[Timed]) -> tuple[list[Timed], list[Timed], list[list[Timed]]]:
    """The answer to ``Hello``, the answer to ``Load``, and one list per request.

    Each list counts its time from the end of what came before it.
    """
    hello: list[Timed] = []
    load: list[Timed] = []
    requests: dict[str, list[Timed]] = {}
    current = ""
    for item in timed:
        if isinstance(item.event, Pong):
            continue
        current = getattr(item.event, "id", "") or current
        if current:
            requests.setdefault(current, []).append(item)
        elif isinstance(item.event, EngineHello):
            hello.append(item)
        else:
            load.append(item)
    start = _end(load, _end(hello, 0.0))
    shifted = []
    for request in requests.values():
        shifted.append(_since(start, request))
        start = _end(request, start)
    return _since(0.0, hello), _since(_end(hello, 0.0), load), shifted


def _end(items: list[Timed], otherwise: float) -> float:
    return items[-1].t if items else otherwise


def _since(start: float, items: list[Timed]) -> list[Timed]:
    return [Timed(max(item.t - start, 0.0), item.event) for item in items]


def _with_id(timed: Timed, request_id: str) -> Timed:
    event = timed.event
    if isinstance(event, EngineDiedError) or not getattr(event, "id", ""):
        return timed
    return Timed(timed.t, dataclasses.replace(event, id=request_id))


@dataclass(slots=True)
class _Running:
    """What was played of one request, to answer its cancellation truthfully."""

    id: str
    prompt: int = 0
    cached: int = 0
    completion: int = 0
    cycles: int = 0
    drafted: int = 0
    accepted: int = 0
    first: Cycle | None = None

    def note(self, event: Event) -> None:
        if isinstance(event, Prefill):
            self.prompt, self.cached = event.total, event.cached
        elif isinstance(event, Cycle):
            self.first = self.first or event
            self.completion += event.committed
            self.cycles += event.i > 0
            self.drafted += event.drafted
            self.accepted += event.accepted

    def cancelled(self) -> Done:
        first_tokens = self.first.committed if self.first else 0
        produced = self.completion - (1 if self.first and self.first.i == 0 else 0)
        tau = produced / self.cycles if self.cycles else 0.0
        return Done(
            id=self.id,
            reason="cancelled",
            usage=Usage(
                prompt=self.prompt, cached=self.cached, completion=self.completion
            ),
            timing=Timing(first_emission_tokens=first_tokens),
            spec=Spec(
                cycles=self.cycles,
                drafted=self.drafted,
                accepted=self.accepted,
                tau=tau,
            ),
        )
