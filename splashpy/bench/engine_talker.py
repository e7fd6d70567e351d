# SPDX-License-Identifier: Apache-2.0
"""This machine's own engine, asked several things at once.

One thread reads the engine's events and hands each to whoever waits for it.
"""

from __future__ import annotations

import itertools
import queue
import threading
from collections.abc import Callable
from time import perf_counter
from types import TracebackType
from typing import Self

from splashpy.bench.talker import Heard, Messages, Wish
from splashpy.client.client import EngineClient
from splashpy.client.loading import load_model
from splashpy.errors import SplashError, error_from
from splashpy.protocol import (
    Cancel,
    Cycle,
    Done,
    Event,
    Failure,
    Generate,
    Load,
    LoadProgress,
    Sampling,
)

_SLICE_SECONDS = 0.25  # between two looks at the wish to stop


class EngineTalker:
    """A loaded model.

    Args:
        client: of the engine.
        load: the model.
        progress: of the loading.

    Attributes:
        ready: facts of the model.

    Raises:
        SplashError: it cannot be loaded.
    """

    def __init__(
        self,
        client: EngineClient,
        load: Load,
        progress: Callable[[LoadProgress], None] = lambda _: None,
    ):
        self._client = client
        self._numbers = itertools.count()
        self._lock = threading.Lock()
        self._waiting: dict[str, queue.SimpleQueue[Event | SplashError]] = {}
        self.ready = load_model(client, load, progress)
        self._reader = threading.Thread(
            target=self._read, name="splashpy-bench-events", daemon=True
        )
        self._reader.start()

    def __enter__(self) -> Self:
        """Ends the engine on leaving the block."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Ends the engine."""
        self._client.close(now=error is not None)
        self._reader.join()

    def ask(
        self, messages: Messages, wish: Wish, stopping: Callable[[], bool]
    ) -> Heard | None:
        """See :class:`~splashpy.bench.talker.Talker`."""
        name = f"bench-{next(self._numbers)}"
        events: queue.SimpleQueue[Event | SplashError] = queue.SimpleQueue()
        with self._lock:
            self._waiting[name] = events
        began = perf_counter()
        self._client.send(_command(name, messages, wish))
        try:
            return self._follow(name, events, began, stopping)
        finally:
            with self._lock:
                del self._waiting[name]

    def _follow(
        self,
        name: str,
        events: queue.SimpleQueue[Event | SplashError],
        began: float,
        stopping: Callable[[], bool],
    ) -> Heard | None:
        first = last = began
        texts: list[str] = []
        stopped = False
        while True:
            try:
                event = events.get(timeout=_SLICE_SECONDS)
            except queue.Empty:
                event = None
            if not stopped and stopping():
                stopped = True
                self._client.send(Cancel(id=name))
            if isinstance(event, SplashError):
                raise event
            if isinstance(event, Failure):
                raise error_from(event)
            if isinstance(event, Cycle) and event.committed:
                last = perf_counter()
                first = last if first == began else first
                texts += [piece.text for piece in event.pieces]
            elif isinstance(event, Done):
                return None if stopped else _heard(event, texts, (began, first, last))

    def _read(self) -> None:
        while True:
            try:
                event: Event | SplashError | None = self._client.receive()
            except EOFError:
                return
            except SplashError as error:
                event = error
            with self._lock:
                waiting = dict(self._waiting)
            if isinstance(event, SplashError):
                for each in waiting.values():
                    each.put(event)
                return
            to = waiting.get(getattr(event, "id", ""))
            if event is not None and to is not None:
                to.put(event)


def _command(name: str, messages: Messages, wish: Wish) -> Generate:
    return Generate(
        id=name,
        messages=tuple(map(dict, messages)),
        max_tokens=wish.max_tokens,
        draft=wish.draft,
        sampling=Sampling(
            temperature=wish.temperature,
            top_k=wish.top_k,
            top_p=wish.top_p,
            seed=wish.seed,
        ),
    )


def _heard(done: Done, texts: list[str], times: tuple[float, float, float]) -> Heard:
    began, first, last = times
    return Heard(
        text="".join(texts),
        began=began,
        first=first,
        last=last,
        prompt_tokens=done.usage.prompt,
        completion_tokens=done.usage.completion,
        spec=done.spec,
    )
