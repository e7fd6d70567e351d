# SPDX-License-Identifier: Apache-2.0
"""The engine as the event loop sees it: asked without waiting, restarted when it dies.

Threads of ``client/link.py`` speak to the engine; what arrives is handed to whoever
asked, on the loop. A dead engine is started again behind the same port, and requests of
which nothing was passed on yet begin anew there (``running.py``). An engine that had
nothing to do for long is ended, if that is wanted, and started by the next request.

::

    loading ──▶ ready ── idle ──▶ unloading ──▶ unloaded ── request ──▶ loading
    ready ── death ──▶ recovering ──▶ ready, or ── too many ──▶ failed
    recovering, loading again ── cannot be loaded ──▶ unloading
    anything ──▶ draining
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable
from dataclasses import replace
from typing import Literal

from splashpy.client.client import EngineClient
from splashpy.client.link import EngineLink
from splashpy.errors import EngineDiedError, SplashError, error_from
from splashpy.protocol import (
    Command,
    Counted,
    Done,
    EngineHello,
    Event,
    Failure,
    Generate,
    Load,
    LoadProgress,
    Memory,
    Ready,
    Tokens,
)
from splashpy.server.errors import ApiError, engine_away, from_failure
from splashpy.server.questions import Answer, Question, Questions
from splashpy.server.restarts import WITHIN_SECONDS, Restarts
from splashpy.server.running import Running, suspects

State = Literal[
    "loading", "ready", "unloading", "unloaded", "recovering", "failed", "draining"
]
_COMING: tuple[State, ...] = ("loading", "recovering", "unloading")
_STUCK_SECONDS = 30.0  # a host that reads a very long prompt may be silent for a while
_MOST_DEATHS = 1  # of engines that worked on a request that still begins anew


class Engine:
    """One engine, with those who wait for it.

    Args:
        connect: returns a started client; called again when the last one died.
        load: the model.
        warn: told, in one line, of deaths and what follows.
        note: told the same way of what is as it should be.
        idle_seconds: without work, after which the engine is ended; None: never.

    Attributes:
        facts: what the engine said of the model when it was last loaded.
        progress: of loading.
        memory: in use.
        pid: of the engine's process; 0 where there is none.
        problem: why there is no engine, where nobody can expect one soon.
        failed: raises what ends the server: the model was never loaded.
        restarts: deaths so far, and when to give up.
        replayed: requests that began anew.
        unloads: times the model was given up for want of work.
    """

    def __init__(
        self,
        connect: Callable[[], EngineClient],
        load: Load,
        warn: Callable[[str], None] = lambda text: None,
        *,
        note: Callable[[str], None] = lambda text: None,
        idle_seconds: float | None = None,
    ) -> None:
        self._connect = connect
        self._load = load
        self._warn, self._note = warn, note
        self.idle_seconds = idle_seconds
        self._link: EngineLink | None = None
        self._dead: EngineLink | None = None
        self._running: dict[str, Running] = {}
        self._questions = Questions(self.send)
        self._settled = asyncio.Event()
        self._loaded = self._wanted = False
        self._waiting = 0
        self._next_start: asyncio.TimerHandle | None = None
        self._rest_ends: asyncio.TimerHandle | None = None
        self._ending: asyncio.Task[None] | None = None
        self._state: State = "loading"
        self.facts: Ready | None = None
        self.progress = LoadProgress(phase="resolve")
        self.memory = Memory()
        self.pid = 0
        self.problem: ApiError | None = None
        self.restarts = Restarts()
        self.replayed = self.unloads = 0
        self.failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    @property
    def state(self) -> State:
        """What it is doing."""
        return self._state

    @property
    def loaded(self) -> bool:
        """Whether the model is in memory."""
        return self._loaded

    @property
    def context(self) -> int:
        """Tokens of prompt plus answer; 0 before the model is loaded."""
        return self.facts.context_max if self.facts else 0

    def start(self) -> None:
        """Begin to load; returns at once."""
        loop = asyncio.get_running_loop()

        def wake() -> None:
            loop.call_soon_threadsafe(self._take, link)

        previous, self._dead = self._dead, None
        link = EngineLink(
            self._connect,
            self._load,
            wake,
            previous=previous,
            stuck_seconds=_STUCK_SECONDS,
        )
        self._link = link
        link.start()

    async def close(self) -> None:
        """End the engine; waits until it is gone."""
        self.drain()
        if self._next_start is not None:
            self._next_start.cancel()
        self._wake()
        if self._ending is not None:
            await self._ending
        for link in (self._link, self._dead):
            if link is not None:
                await asyncio.to_thread(link.close, now=link is self._dead)

    def kill(self) -> None:
        """End the engine at once, from any thread."""
        for link in (self._link, self._dead):
            if link is not None:
                link.close(now=True)

    def drain(self) -> None:
        """Refuse what has not begun; what has may end."""
        if self.state == "draining":
            return
        self._enter("draining")
        for running in list(self._running.values()):
            if not running.begun:
                self._drop(running, self.absence())

    def end_all(self) -> None:
        """Nobody waits any longer for what still runs."""
        for running in list(self._running.values()):
            self._drop(running, self.absence())

    async def until_ready(self, seconds: float) -> Ready:
        """Facts about the loaded model; one that was unloaded is loaded again.

        Raises:
            ApiError: it is not loaded after ``seconds``, or the server shuts down.
        """
        self._load_again()
        self._wake()
        self._waiting += 1
        try:
            async with asyncio.timeout(seconds):
                while self.state in _COMING:
                    await self._settled.wait()
        except TimeoutError:
            raise self.absence() from None
        finally:
            self._waiting -= 1
            self._rest()
        if self.state != "ready" or self.facts is None:
            raise self.absence()
        return self.facts

    def absence(self) -> ApiError:
        """Why there is no answer now."""
        if self.state == "draining":
            return ApiError("shutting_down", "the server is shutting down")
        if self.problem is not None and self.state not in _COMING:
            return ApiError(self.problem.code, self.problem.message)
        if self.state == "recovering":
            return ApiError("engine_recovering", "the engine is restarted")
        return ApiError("model_loading", "Loading model")

    def generate(self, command: Generate) -> Running:
        """Begin a request; follow it with ``next``, end it with ``leave``."""
        running = Running(command, self.send, self.forget)
        self._running[command.id] = running
        self._wake()
        self._load_again()
        self._hand_over()
        return running

    async def ask(self, question: Question) -> Answer:
        """Ask something that needs no target; waits for no other request.

        Raises:
            ApiError: the request is wrong, or the engine died.
        """
        answer = self._questions.begin(question)
        self._wake()
        self._load_again()
        if self._loaded:
            self.send(question)
        try:
            return await answer
        finally:
            self._questions.end(question)
            self._rest()

    def send(self, command: Command) -> None:
        """Hand a command to the engine, if there is one."""
        if self._link is not None:
            self._link.send(command)

    def forget(self, request_id: str) -> None:
        """Drop what still arrives for a request."""
        self._running.pop(request_id, None)
        self._hand_over()
        self._rest()

    # --- what the engine is given -----------------------------------------------------

    def _enter(self, state: State) -> None:
        self._state = state
        if state in _COMING:
            self._settled.clear()
        else:
            self._settled.set()

    def _hand_over(self) -> None:
        """Give the engine what it does not have yet.

        Of those under which an engine died only one at a time: should the next engine
        die as well, it is known of which. It goes before those that wait, since it was
        before them already.
        """
        if not self._loaded:
            return
        alone = any(one.at_engine and one.deaths for one in self._running.values())
        for running in self._running.values():
            if running.at_engine or (running.deaths and alone):
                continue
            command = running.command
            if running.deaths:
                alone = True
                command = replace(command, foreground=True)
            running.at_engine = True
            self.send(command)

    def _drop(self, running: Running, error: ApiError) -> None:
        running.leave()
        running.put(error)

    # --- what arrives -----------------------------------------------------------------

    def _take(self, link: EngineLink) -> None:
        for _, arrived in link.take():
            if link is not self._link:
                return
            if isinstance(arrived, SplashError):
                self._lost(arrived)
            else:
                self._dispatch(arrived)

    def _dispatch(self, event: Event) -> None:  # noqa: C901 - one table
        running = self._running.get(getattr(event, "id", ""))
        match event:
            case Ready():
                self._became_ready(event)
            case EngineHello():
                self.pid = event.pid
            case LoadProgress():
                self.progress = event
            case Memory():
                self.memory = event
            case Counted() | Tokens():
                self._questions.answer(event)
            case Failure() if event.fatal:
                # A dying engine reports itself by dying; this says of what.
                if running is not None:
                    running.blamed = True
            case Failure() if not event.id:
                self._cannot_load(event)
            case Failure() if running is not None:
                running.put(from_failure(event, self.context))
                self.forget(event.id)
            case Failure() if event.id in self._questions:
                self._questions.refuse(event.id, from_failure(event, self.context))
            case _ if running is not None:
                running.put(event)
                if isinstance(event, Done):
                    self.forget(event.id)
            case _:
                pass

    def _became_ready(self, event: Ready) -> None:
        self.facts = event
        self._loaded = True
        self.problem = None
        if self.state != "draining":
            self._enter("ready")
        self._hand_over()
        self._questions.send_all()
        self._rest()

    def _refuse_all(self, error: Callable[[], ApiError]) -> None:
        for running in list(self._running.values()):
            self._drop(running, error())
        self._questions.refuse_all(error)

    # --- when it dies -----------------------------------------------------------------

    def _lost(self, error: SplashError) -> None:
        self._dead, self._link = self._link, None
        self._loaded, self.pid = False, 0
        self._wake()
        if self.state in ("draining", "failed"):
            self._refuse_all(self.absence)
        elif not isinstance(error, EngineDiedError) or self.facts is None:
            # It never worked: starting it again would fail the same way.
            self._give_up(error)
        else:
            self._judge(error)
            self._restart(error)

    def _judge(self, error: SplashError) -> None:
        """Decide who begins anew and who fails."""
        under_way = list(self._running.values())
        for running in suspects(under_way):
            running.deaths += 1
        for running in under_way:
            if running.told:
                self._drop(running, engine_away(error))
            elif running.deaths > _MOST_DEATHS:
                self._drop(running, _poisoned(error))
            elif running.at_engine:
                running.begin_anew()
                self.replayed += 1
        self._questions.survive(lambda: engine_away(error))

    def _restart(self, error: SplashError) -> None:
        loop = asyncio.get_running_loop()
        wait = self.restarts.after_death(loop.time())
        if wait is None:
            self._end_in_background(self._dead, now=True)
            self.problem = ApiError(
                "engine_failed",
                f"the engine died too often within {WITHIN_SECONDS / 60:.0f} minutes "
                f"and is not started again: {error.message}",
            )
            self._enter("failed")
            self._refuse_all(self.absence)
            self._warn(f"{self.problem.message}; restart the server")
            return
        self._enter("recovering")
        when = f"in {wait:.0f} s" if wait else "at once"
        self._warn(f"{error.message}; starting it again {when}")
        self._next_start = loop.call_later(wait, self.start)

    def _give_up(self, error: SplashError) -> None:
        self.problem = ApiError("engine_failed", error.message)
        self._enter("failed")
        self._refuse_all(self.absence)
        if not self.failed.done():
            self.failed.set_exception(error)

    def _cannot_load(self, failure: Failure) -> None:
        if self.facts is None:
            self._give_up(error_from(failure))
            return
        # It was loaded before, so it may be again: memory may be short for now.
        found = from_failure(failure, self.context)
        text = f"the model cannot be loaded again: {failure.message}"
        code = "insufficient_memory" if found.code == "insufficient_memory" else ""
        self.problem = ApiError(code or "engine_failed", text)
        self._warn(text)
        self._unload()
        self._refuse_all(lambda: ApiError(code or "engine_failed", text))

    # --- when there is nothing to do --------------------------------------------------

    def _rest(self) -> None:
        """End the engine later, unless something comes."""
        self._wake()
        busy = self._waiting or self._running or self._questions
        if self.state == "ready" and not busy and self.idle_seconds is not None:
            loop = asyncio.get_running_loop()
            self._rest_ends = loop.call_later(self.idle_seconds, self._put_away)

    def _put_away(self) -> None:
        self.unloads += 1
        self._note("nothing to do; the model is unloaded until the next request")
        self._unload()

    def _unload(self) -> None:
        """End the engine's process: that frees its memory for certain."""
        link, self._link = self._link, None
        self._loaded, self.pid = False, 0
        self.memory = Memory()
        if self.state != "draining":
            self._enter("unloading")
        self._end_in_background(link, now=False)

    def _end_in_background(self, link: EngineLink | None, *, now: bool) -> None:
        loop = asyncio.get_running_loop()
        self._ending = loop.create_task(self._end(link, now=now))

    async def _end(self, link: EngineLink | None, *, now: bool) -> None:
        if link is not None:
            await asyncio.to_thread(link.close, now=now)
        if self.state == "unloading":
            self._enter("unloaded")
            if self._wanted:
                self._load_again()

    def _load_again(self) -> None:
        """Somebody wants something: a model that was unloaded is loaded."""
        if self.state == "unloading":
            self._wanted = True
        elif self.state == "unloaded":
            self._wanted = False
            self.progress = LoadProgress(phase="resolve")
            self._enter("loading")
            self.start()

    def _wake(self) -> None:
        if self._rest_ends is not None:
            self._rest_ends.cancel()
            self._rest_ends = None


def _poisoned(error: SplashError) -> ApiError:
    return ApiError(
        "engine_failed",
        "the engine died twice while it worked on this request, which is not tried "
        f"again: {error.message}",
        status=500,
    )


def new_id(prefix: str, digits: int) -> str:
    """A fresh id: the prefix and hexadecimal digits."""
    return prefix + secrets.token_hex(digits // 2)
