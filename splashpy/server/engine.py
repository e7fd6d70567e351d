# SPDX-License-Identifier: Apache-2.0
"""The engine as the event loop sees it: asked without waiting, restarted when it dies.

Threads of ``client/link.py`` speak to the engine; what arrives is handed to whoever
asked, on the loop. A dead engine is started again behind the same port; requests that
were under way fail, requests that come meanwhile are told to try again.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable
from typing import Literal

from splashpy.client.client import EngineClient
from splashpy.client.link import EngineLink
from splashpy.errors import EngineDiedError, SplashError, error_from
from splashpy.protocol import (
    Cancel,
    Command,
    Count,
    Counted,
    Detokenize,
    Done,
    Event,
    Failure,
    Generate,
    Load,
    LoadProgress,
    Memory,
    Ready,
    Tokenize,
    Tokens,
)
from splashpy.server.errors import ApiError, engine_away, from_failure

State = Literal["loading", "ready", "recovering", "draining", "failed"]
_LONGEST_WAIT = 16.0  # seconds before an engine is started again
_SOUND_SECONDS = 120.0  # an engine that lived this long begins with short waits


class Running:
    """One request at the engine."""

    def __init__(self, engine: Engine, command: Generate) -> None:
        self._engine = engine
        self.command = command
        self.ended = False
        self._events: asyncio.Queue[Event | SplashError] = asyncio.Queue()

    def put(self, arrived: Event | SplashError) -> None:
        """Hand over what arrived for this request."""
        self._events.put_nowait(arrived)

    async def next(self, seconds: float | None) -> Event | None:
        """The next event; None when ``seconds`` passed without one.

        Raises:
            ApiError: the request failed, or its engine died.
        """
        try:
            # Not wait_for: in Python 3.11 it may swallow a cancellation.
            async with asyncio.timeout(seconds):
                arrived = await self._events.get()
        except TimeoutError:
            return None
        if isinstance(arrived, SplashError):
            self.ended = True
            raise engine_away(arrived)
        if isinstance(arrived, Failure):
            self.ended = True
            raise from_failure(arrived, self._engine.context)
        self.ended = self.ended or isinstance(arrived, Done)
        return arrived

    def cancel(self) -> None:
        """Stop it; its ``Done`` still comes."""
        if not self.ended:
            self._engine.send(Cancel(id=self.command.id))

    def leave(self) -> None:
        """Stop it and forget it."""
        self.cancel()
        self.ended = True
        self._engine.forget(self.command.id)


class Engine:
    """One engine, with those who wait for it.

    Args:
        connect: returns a started client; called again when the last one died.
        load: the model.
        note: told, in one line, of deaths and restarts.
    """

    def __init__(
        self,
        connect: Callable[[], EngineClient],
        load: Load,
        note: Callable[[str], None] = lambda text: None,
    ) -> None:
        self._connect = connect
        self._load = load
        self._note = note
        self._link: EngineLink | None = None
        self._running: dict[str, Running] = {}
        self._asked: dict[str, asyncio.Future[Counted | Tokens]] = {}
        self._ready = asyncio.Event()
        self._wait = 1.0
        self._ready_at = 0.0
        self._restart: asyncio.TimerHandle | None = None
        self.state: State = "loading"
        self.facts: Ready | None = None
        self.progress = LoadProgress(phase="resolve")
        self.memory = Memory()
        self.failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    @property
    def context(self) -> int:
        """Tokens of prompt plus answer; 0 before the model is loaded."""
        return self.facts.context_max if self.facts else 0

    def start(self) -> None:
        """Begin to load; returns at once."""
        loop = asyncio.get_running_loop()
        previous = self._link

        def wake() -> None:
            loop.call_soon_threadsafe(self._take, link)

        link = EngineLink(self._connect, self._load, wake, previous=previous)
        self._link = link
        link.start()

    async def close(self) -> None:
        """End the engine; waits until it is gone."""
        if self._restart is not None:
            self._restart.cancel()
        self.state = "draining"
        if self._link is not None:
            await asyncio.to_thread(self._link.close)

    def kill(self) -> None:
        """End the engine at once, from any thread."""
        if self._link is not None:
            self._link.close(now=True)

    async def until_ready(self, seconds: float) -> Ready:
        """Facts about the loaded model.

        Raises:
            ApiError: it is not loaded after ``seconds``, or the server shuts down.
        """
        if self.state in ("loading", "recovering") and seconds:
            try:
                async with asyncio.timeout(seconds):
                    await self._ready.wait()
            except TimeoutError:
                raise self.absence() from None
        if self.state != "ready" or self.facts is None:
            raise self.absence()
        return self.facts

    def absence(self) -> ApiError:
        """Why there is no answer now."""
        if self.state == "draining":
            return ApiError("shutting_down", "the server is shutting down")
        if self.state == "recovering":
            return ApiError("engine_recovering", "the engine is restarted")
        return ApiError("model_loading", "Loading model")

    def generate(self, command: Generate) -> Running:
        """Begin a request; follow it with ``next``, end it with ``leave``."""
        running = Running(self, command)
        self._running[command.id] = running
        self.send(command)
        return running

    async def ask(self, command: Count | Tokenize | Detokenize) -> Counted | Tokens:
        """Ask something that needs no target; waits for no other request.

        Raises:
            ApiError: the request is wrong, or the engine died.
        """
        future = asyncio.get_running_loop().create_future()
        self._asked[command.id] = future
        self.send(command)
        try:
            return await future
        finally:
            self._asked.pop(command.id, None)

    def send(self, command: Command) -> None:
        """Hand a command to the engine."""
        if self._link is not None:
            self._link.send(command)

    def forget(self, request_id: str) -> None:
        """Drop what still arrives for a request."""
        self._running.pop(request_id, None)

    # --- what arrives -----------------------------------------------------------------

    def _take(self, link: EngineLink) -> None:
        for _, arrived in link.take():
            if link is not self._link:
                return
            if isinstance(arrived, SplashError):
                self._lost(arrived)
            else:
                self._dispatch(arrived)

    def _dispatch(self, event: Event) -> None:
        if isinstance(event, Ready):
            self._became_ready(event)
        elif isinstance(event, LoadProgress):
            self.progress = event
        elif isinstance(event, Memory):
            self.memory = event
        elif isinstance(event, Counted | Tokens):
            self._answer(event)
        elif isinstance(event, Failure) and not event.id:
            self._fail(event)
        elif (running := self._running.get(getattr(event, "id", ""))) is not None:
            running.put(event)
            if isinstance(event, Done | Failure):
                self.forget(event.id)
        elif isinstance(event, Failure) and event.id in self._asked:
            self._asked[event.id].set_exception(from_failure(event, self.context))

    def _became_ready(self, event: Ready) -> None:
        self.facts = event
        self.state = "ready" if self.state != "draining" else self.state
        self._ready_at = asyncio.get_running_loop().time()
        self._ready.set()

    def _answer(self, event: Counted | Tokens) -> None:
        future = self._asked.get(event.id)
        if future is not None and not future.done():
            future.set_result(event)

    def _fail(self, event: Failure) -> None:
        """The model cannot be loaded; a dying engine reports itself by dying."""
        if not event.fatal and not self.failed.done():
            self.state = "failed"
            self.failed.set_exception(error_from(event))

    def _lost(self, error: SplashError) -> None:
        for running in self._running.values():
            running.put(error)
        for future in self._asked.values():
            if not future.done():
                future.set_exception(engine_away(error))
        self._running.clear()
        self._ready.clear()
        if self.state in ("draining", "failed"):
            return
        if not isinstance(error, EngineDiedError):
            if not self.failed.done():
                self.failed.set_exception(error)
            return
        self._restart_later(error)

    def _restart_later(self, error: SplashError) -> None:
        loop = asyncio.get_running_loop()
        if self.facts is None and self.state == "loading":
            # It never worked: starting it again would fail the same way.
            self.state = "failed"
            self.failed.set_exception(error)
            return
        lived = self.state == "ready" and loop.time() - self._ready_at > _SOUND_SECONDS
        self._wait = 1.0 if lived else self._wait
        self.state = "recovering"
        self._note(f"{error.message}; starting it again in {self._wait:.0f} s")
        self._restart = loop.call_later(self._wait, self.start)
        self._wait = min(2 * self._wait, _LONGEST_WAIT)


def new_id(prefix: str, digits: int) -> str:
    """A fresh id: the prefix and hexadecimal digits."""
    return prefix + secrets.token_hex(digits // 2)
