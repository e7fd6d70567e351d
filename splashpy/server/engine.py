# SPDX-License-Identifier: Apache-2.0
"""The engine as the event loop sees it: asked without waiting, restarted when it dies.

What arrives from the engine (``links.py``) is handed to whoever asked. A dead engine is
started again behind the same port, one that hangs is ended first, and requests of which
nothing was passed on yet begin anew there (``under_way.py``). An engine without work
for long is ended, if that is wanted, and started by the next request.

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
from splashpy.errors import (
    CapacityError,
    EngineDiedError,
    EngineStuckError,
    ShortageError,
    SplashError,
    error_from,
)
from splashpy.protocol import (
    Command,
    Counted,
    Event,
    Failure,
    Generate,
    Load,
    Log,
    Ready,
    Tokens,
)
from splashpy.server.errors import ApiError, engine_away, from_failure
from splashpy.server.links import Links
from splashpy.server.questions import Answer, Question, Questions
from splashpy.server.restarts import SAFE_MODE, WITHIN_SECONDS, Restarts
from splashpy.server.running import Running
from splashpy.server.under_way import UnderWay
from splashpy.server.vitals import Vitals

State = Literal[
    "loading", "ready", "unloading", "unloaded", "recovering", "failed", "draining"
]
_COMING: tuple[State, ...] = ("loading", "recovering", "unloading")


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
        vitals: what it says of itself.
        problem: why there is no engine, where nobody can expect one soon.
        failed: raises what ends the server: the model was never loaded.
        restarts: deaths so far, and when to give up.
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
        self._links = Links(connect, self._take)
        self._load = load
        self._warn, self._note = warn, note
        self.idle_seconds = idle_seconds
        self._under_way = UnderWay(self.send, self._one_left)
        self._running = self._under_way.running
        self._questions = Questions(self.send)
        self._settled = asyncio.Event()
        self._loaded = self._wanted = self._safe_mode = False
        self._waiting = 0
        self._next_start: asyncio.TimerHandle | None = None
        self._rest_ends: asyncio.TimerHandle | None = None
        self._state: State = "loading"
        self.facts: Ready | None = None
        self.vitals = Vitals(asyncio.get_running_loop().time)
        self.problem: ApiError | None = None
        self.restarts = Restarts()
        self.unloads = 0
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

    @property
    def replayed(self) -> int:
        """Requests that began anew at another engine."""
        return self._under_way.replayed

    @property
    def safe_mode(self) -> bool:
        """Whether it does without kernels, since it died with them."""
        return self._safe_mode

    def start(self) -> None:
        """Begin to load; returns at once."""
        self._links.start(self._load)

    async def close(self) -> None:
        """End the engine; waits until it is gone."""
        self.drain()
        if self._next_start is not None:
            self._next_start.cancel()
        self._wake()
        await self._links.close()

    def kill(self) -> None:
        """End the engine at once, from any thread."""
        self._links.kill()

    def drain(self) -> None:
        """Refuse what has not begun; what has may end."""
        if self.state == "draining":
            return
        self._enter("draining")
        self._under_way.drop_all(self.absence, begun=False)

    def end_all(self) -> None:
        """Nobody waits any longer for what still runs."""
        self._under_way.drop_all(self.absence)

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
        running = self._under_way.begin(command)
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
        self._links.send(command)

    # --- what the engine is given -----------------------------------------------------

    def _enter(self, state: State) -> None:
        self._state = state
        if state in _COMING:
            self._settled.clear()
        else:
            self._settled.set()

    def _hand_over(self) -> None:
        if self._loaded:
            self._under_way.hand_over()

    def _one_left(self) -> None:
        self._hand_over()
        self._rest()

    # --- what arrives -----------------------------------------------------------------

    def _take(self, arrived: Event | SplashError) -> None:
        if isinstance(arrived, SplashError):
            self._lost(arrived)
        else:
            self._dispatch(arrived)

    def _dispatch(self, event: Event) -> None:
        name = getattr(event, "id", "")
        match event:
            case _ if self.vitals.take(event):
                pass
            case Ready():
                self._became_ready(event)
            case Log(level="warn" | "error"):
                self._warn(event.text)
            case Counted() | Tokens():
                self._questions.answer(event)
            case Failure() if event.fatal:
                self._under_way.blame(name)
            case Failure() if not name:
                self._cannot_load(event)
            case Failure() if name in self._questions:
                self._questions.refuse(name, from_failure(event, self.context))
            case _ if name in self._running:
                self._under_way.take(name, event, self.context)
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
        self._under_way.drop_all(error)
        self._questions.refuse_all(error)

    # --- when it dies -----------------------------------------------------------------

    def _lost(self, error: SplashError) -> None:
        self._links.lose()
        self._loaded = False
        self.vitals.gone()
        self._wake()
        if isinstance(error, EngineStuckError):
            error = EngineStuckError(f"{error.message}: {error.why}")
        if self.state in ("draining", "failed"):
            self._refuse_all(self.absence)
        elif not isinstance(error, EngineDiedError) or self._never_works:
            self._give_up(error)
        else:
            units = self._under_way.units
            self._under_way.judge(error)
            self._questions.survive(lambda: engine_away(error))
            self._restart(error, units)

    @property
    def _never_works(self) -> bool:
        """Whether starting it again would fail the same way.

        An engine that dies while it loads may do so of its own kernels.
        """
        return self.facts is None and not self._uses_kernels

    @property
    def _uses_kernels(self) -> bool:
        return self.vitals.kernels and self._load.options.kernels

    def _restart(self, error: SplashError, units: int) -> None:
        loop = asyncio.get_running_loop()
        wait = self.restarts.after_death(loop.time(), units)
        if wait is None:
            self._links.bury()
            self.problem = ApiError(
                "engine_failed",
                f"the engine died too often within {WITHIN_SECONDS / 60:.0f} minutes "
                f"and is not started again: {error.message}",
            )
            self._enter("failed")
            self._refuse_all(self.absence)
            self._warn(f"{self.problem.message}; restart the server")
            return
        if self.restarts.early and self._uses_kernels:
            options = replace(self._load.options, kernels=False)
            self._load = replace(self._load, options=options)
            self._safe_mode = True
            self._warn(SAFE_MODE)
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
        text = f"the model cannot be loaded again: {failure.message}"
        short = failure.code in (CapacityError.code, ShortageError.code)
        code = "insufficient_memory" if short else "engine_failed"
        self.problem = ApiError(code, text)
        self._warn(text)
        self._unload()
        self._refuse_all(lambda: ApiError(code, text))

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
        self._loaded = False
        self.vitals.gone()
        if self.state != "draining":
            self._enter("unloading")
        self._links.put_away(self._unloaded)

    def _unloaded(self) -> None:
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
            self.vitals.begin_again()
            self._enter("loading")
            self.start()

    def _wake(self) -> None:
        if self._rest_ends is not None:
            self._rest_ends.cancel()
            self._rest_ends = None


def new_id(prefix: str, digits: int) -> str:
    """A fresh id: the prefix and hexadecimal digits."""
    return prefix + secrets.token_hex(digits // 2)
