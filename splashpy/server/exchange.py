# SPDX-License-Identifier: Apache-2.0
"""One request from its first check to its last byte, whatever its dialect.

::

    body ── a dialect's ``read`` ──▶ Ask ── admission, engine ──▶ events
                                                                    │
    bytes ◀── the dialect's ``Shape`` ◀─────────────────────────────┘

Everything that can be wrong with a request is found before a header is sent, so it has
its own status; after that an error is an event of the stream.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

from starlette.types import Receive, Scope, Send

from splashpy.protocol import (
    Accepted,
    Cycle,
    Done,
    Event,
    Generate,
    Prefill,
    Queued,
    ToolDelta,
)
from splashpy.server.bodies import DisconnectedError
from splashpy.server.endpoint import Endpoint
from splashpy.server.engine import new_id
from splashpy.server.errors import ApiError, TooLongError, bug
from splashpy.server.gate import json_response
from splashpy.server.outcome import Outcome
from splashpy.server.running import Anew, Arrived, Running
from splashpy.server.streaming import EVENTS, EventStream, disconnected

_HEADERS_AFTER = 2.0  # seconds in the queue before a stream begins anyway


class Shape(Protocol):
    """How a dialect writes an answer; made anew for every request."""

    def start(self, outcome: Outcome) -> Iterator[bytes]:
        """The stream begins; called once, when it is known what was cached."""
        ...

    def take(self, outcome: Outcome, event: Cycle | ToolDelta) -> Iterator[bytes]:
        """More of the answer; ``outcome`` has taken the event already."""
        ...

    def quiet(self, progress: Prefill | None) -> bytes:
        """A frame that says the answer is still on its way."""
        ...

    def end(self, outcome: Outcome) -> Iterator[bytes]:
        """One answer of the request ended."""
        ...

    def close(self, outcomes: list[Outcome]) -> Iterator[bytes]:
        """The stream ends well."""
        ...

    def fail(self, error: ApiError) -> Iterator[bytes]:
        """The stream ends with an error."""
        ...

    def body(self, outcomes: list[Outcome]) -> Any:
        """The whole answer as one JSON value."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """A request as its dialect understood it.

    Attributes:
        commands: what the engine is asked, one after the other.
        shape: writes the answer.
        stream: as events, not as one document.
        param: the field that holds the prompt, for errors.
        progress: tell how far the prompt is read.
        seconds: how long it may take; None: as long as the server allows.
        limit: whether to stop, given the answer so far and the seconds since its first
            token; None never does.
        call_prefix: how ids of tool calls begin.
        media: content type of the answer as a stream.
    """

    commands: tuple[Generate, ...]
    shape: Shape
    stream: bool = False
    param: str = "messages"
    progress: bool = False
    seconds: float | None = None
    limit: Callable[[Outcome, float], bool] | None = None
    call_prefix: str = "call_"
    media: str = EVENTS


class Answering:
    """Answers one request; a response of ASGI."""

    def __init__(self, endpoint: Endpoint, ask: Ask, endpoint_name: str):
        self._endpoint = endpoint
        self._ask = ask
        self._name = endpoint_name
        self._outcomes: list[Outcome] = []
        self._running: Running | None = None
        loop = asyncio.get_running_loop()
        most = endpoint.settings.request_seconds
        self._seconds = min(ask.seconds or most, most)
        self._deadline = loop.time() + self._seconds
        self._result = "cancelled"
        self._request_id = ""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Admit, ask, answer.

        Raises:
            ApiError: before anything was sent.
        """
        endpoint = self._endpoint
        endpoint.admit()
        self._request_id = scope["state"]["request_id"]
        try:
            await self._begin(self._ask.commands[0], receive)
            if self._ask.stream:
                stream = EventStream(self._stream(), self._ask.media)
                await stream(scope, receive, send)
            else:
                body = await _unless_gone(self._collect(), receive)
                await json_response(body)(scope, receive, send)
        except ApiError:
            self._result = "error"
            raise
        finally:
            if self._running is not None:
                self._running.leave()
            endpoint.release()
            endpoint.note_request(self._name, self._result, self._outcomes)

    async def _begin(self, command: Generate, receive: Receive | None = None) -> None:
        """Hand a command over and wait until the engine has accepted it.

        Raises:
            ApiError: the request cannot be answered.
        """
        self._running = self._endpoint.engine.generate(command)
        self._outcomes.append(self._blank(command))
        waiting = self._accepted(self._running)
        await (waiting if receive is None else _unless_gone(waiting, receive))

    def _blank(self, command: Generate) -> Outcome:
        several = len(self._ask.commands) > 1
        prompt = _prompt_key(command) if several else ""
        return Outcome(self._ask.call_prefix, prompt=prompt)

    async def _accepted(self, running: Running) -> None:
        event: Arrived | None = None
        try:
            while event is None or isinstance(event, Anew):
                event = await self._next(self._deadline)
            if isinstance(event, Accepted):
                first = self._ask.stream and len(self._outcomes) == 1
                event = await self._admitted() if first else None
        except TooLongError as error:
            raise TooLongError(error.tokens, error.context, self._ask.param) from None
        except ApiError as error:
            constraint = running.command.constraint
            if error.code == "unsupported_schema":
                error.param = constraint.place if constraint else "tools"
            raise
        if event is not None:
            running.put_back(event)

    async def _admitted(self) -> Event | None:
        """The first event of the work proper; None after two seconds of waiting."""
        until = asyncio.get_running_loop().time() + _HEADERS_AFTER
        while True:
            event = await self._next(until)
            if not isinstance(event, Accepted | Queued | Anew):
                return event

    # --- streaming --------------------------------------------------------------------

    async def _stream(self) -> AsyncIterator[bytes]:
        shape, ask = self._ask.shape, self._ask
        try:
            for number, command in enumerate(ask.commands):
                if number:
                    await self._begin(command)
                async for chunk in self._frames(self._outcomes[-1]):
                    yield chunk
            for chunk in shape.close(self._outcomes):
                yield chunk
            self._result = "ok"
        except ApiError as error:
            for chunk in self._failed(error):
                yield chunk
        except Exception:
            # A stream that just ends looks like a complete answer to its reader.
            for chunk in self._failed(bug()):
                yield chunk
            raise

    def _failed(self, error: ApiError) -> Iterator[bytes]:
        self._result = "error"
        error.request_id = self._request_id
        return self._ask.shape.fail(error)

    async def _frames(self, outcome: Outcome) -> AsyncIterator[bytes]:
        """The frames of one answer, with signs of life in its silences."""
        shape, loop = self._ask.shape, asyncio.get_running_loop()
        keepalive = self._endpoint.settings.keepalive_seconds
        begun = len(self._outcomes) > 1
        spoke = loop.time()
        while outcome.done is None:
            event = await self._next(spoke + keepalive)
            chunks: list[bytes] = []
            if isinstance(event, Anew):
                outcome.prefill = None
                continue
            if event is None or (isinstance(event, Prefill) and self._ask.progress):
                told = event if isinstance(event, Prefill) else outcome.prefill
                chunks = [shape.quiet(told if self._ask.progress else None)]
            if event is not None:
                self._note(outcome, event)
            if not begun and isinstance(event, Cycle | ToolDelta | Done):
                begun = True
                chunks += shape.start(outcome)
            if isinstance(event, Cycle | ToolDelta):
                self._pass_on()
                chunks += shape.take(outcome, event)
            elif isinstance(event, Done):
                chunks += shape.end(outcome)
            for chunk in chunks:
                spoke = loop.time()
                yield chunk

    def _pass_on(self) -> None:
        """Note that the client gets part of the answer, which must be its own now."""
        assert self._running is not None
        self._running.told = True

    async def _next(self, until: float) -> Arrived | None:
        """What comes next; None when there is nothing at the time ``until``.

        Raises:
            ApiError: the request failed, or took too long.
        """
        assert self._running is not None
        loop = asyncio.get_running_loop()
        if loop.time() >= self._deadline:
            raise self._too_late(self._running)
        wait = min(until, self._deadline) - loop.time()
        return await self._running.next(max(wait, 0.001))

    def _too_late(self, running: Running) -> ApiError:
        seconds = f"{self._seconds:g} s"
        if running.begun:
            return ApiError("request_timeout", f"the request took more than {seconds}")
        waited = f"the request waited {seconds}, as long as it may, and was not begun"
        return ApiError("request_timeout", waited)

    # --- one document -----------------------------------------------------------------

    async def _collect(self) -> Any:
        for number, command in enumerate(self._ask.commands):
            if number:
                await self._begin(command)
            while (outcome := self._outcomes[-1]).done is None:
                event = await self._next(self._deadline)
                if isinstance(event, Anew):
                    self._outcomes[-1] = self._blank(command)
                elif event is not None:
                    self._note(outcome, event)
        self._result = "ok"
        return self._ask.shape.body(self._outcomes)

    def _note(self, outcome: Outcome, event: Event) -> None:
        """Take an event into the outcome; stop where a limit says so."""
        outcome.take(event, new_id(self._ask.call_prefix, 24))
        if not isinstance(event, Cycle):
            return
        now = asyncio.get_running_loop().time()
        outcome.first_at = outcome.first_at or now
        outcome.last_at = now
        if self._ask.limit is None:
            return
        if not outcome.limited and self._ask.limit(outcome, now - outcome.first_at):
            outcome.limited = True
            if self._running is not None:
                self._running.cancel()


def _prompt_key(command: Generate) -> str:
    """Equal for commands with the same prompt."""
    return repr((command.messages, command.prompt, command.prompt_ids, command.infill))


async def _unless_gone(work: Any, receive: Receive) -> Any:
    """The result of ``work``.

    Raises:
        DisconnectedError: the client left before.
    """
    task = asyncio.ensure_future(work)
    watcher = asyncio.ensure_future(disconnected(receive))
    try:
        await asyncio.wait({task, watcher}, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            return task.result()
        raise DisconnectedError
    finally:
        for item in (task, watcher):
            item.cancel()
            with contextlib.suppress(asyncio.CancelledError, Exception):
                await item
