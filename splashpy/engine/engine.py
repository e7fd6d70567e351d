# SPDX-License-Identifier: Apache-2.0
"""The engine's front door and its one thread.

The thread loads the weights, owns every array and runs every request, some at a time
(``lanes.py``). Whoever holds the engine hands requests over and gets events back
through the ``emit`` callback, which must not block.
"""

from __future__ import annotations

import itertools
import queue
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from heapq import heapify
from time import perf_counter

import mlx.core as mx

from splashpy.cache.prefix import PrefixCache
from splashpy.drafting.plain import PlainDrafter
from splashpy.engine.accounts import lane_size, open_ledger
from splashpy.engine.lane_claim import LaneClaim
from splashpy.engine.lanes import Lanes
from splashpy.engine.loading import Loaded, LoadRequest, load
from splashpy.engine.memory_ledger import MemoryLedger, is_refusal
from splashpy.engine.memory_watch import MemoryWatch
from splashpy.engine.pulse import Pulse, Unit
from splashpy.engine.request import (
    EngineEvent,
    Failed,
    Finished,
    GenerationRequest,
    SetAside,
    Waiting,
)
from splashpy.engine.shelf import open_cache
from splashpy.engine.task import Means, Task
from splashpy.engine.widths import Widths
from splashpy.errors import InternalError, SplashError, UsageError
from splashpy.protocol import (
    LoadOptions,
    LoadProgress,
    Log,
    Memory,
    Phases,
    Shed,
)
from splashpy.units import format_bytes


@dataclass(frozen=True, slots=True)
class LoadFailed:
    """Loading failed; the engine can load something else."""

    error: SplashError


@dataclass(frozen=True, slots=True)
class _Job:
    request: GenerationRequest
    accepted_at: float


_Entry = tuple[bool, int, _Job | LoadRequest | None]
"""False first: a request in the foreground; then in order of arrival."""

_FLUSH_SECONDS = 5.0  # for what shall survive on disk, when the engine ends
_IDLE_LOOK_SECONDS = 5.0  # between two looks at the computer while nothing is asked
_STEP_SECONDS = 0.02  # between two looks at a writer that is behind

Emitted = (
    EngineEvent | Loaded | LoadFailed | LoadProgress | Memory | Phases | Shed | Log
)
Emit = Callable[[Emitted], None]


class Engine:
    """One model on one thread.

    Args:
        emit: receives every event: ``Waiting`` on the thread that submits, all others
            on the engine thread.
    """

    def __init__(self, emit: Emit):
        self._emit = emit
        self._jobs: queue.PriorityQueue[_Entry] = queue.PriorityQueue()
        self._arrivals = itertools.count()
        self._lock = threading.Lock()
        self._waiting: list[str] = []
        self._cancelled: set[str] = set()
        self._closing = False
        self._flush_seconds = _FLUSH_SECONDS
        self._loaded: Loaded | None = None
        self._cache: PrefixCache | None = None
        self._lanes: Lanes | None = None
        self._most = LoadOptions().max_concurrent
        self._memory = MemoryWatch(emit)
        self._phases = Phases()
        self._pulse = Pulse()
        self._thread = threading.Thread(
            target=self._run, name="splashpy-engine", daemon=True
        )
        self._thread.start()

    def load(self, request: LoadRequest) -> None:
        """Load a model; answered by progress, then ``Loaded`` or ``LoadFailed``."""
        self._put(request)

    def unload(self) -> None:
        """Free the model once the requests before this call are answered."""
        self._put(None)

    def submit(self, request: GenerationRequest) -> None:
        """Queue a request; answered by events that end in Finished or Failed.

        One in the foreground runs before those that wait.
        """
        with self._lock:
            position = max(len(self._waiting) + 1 - self._most, 0)
            self._waiting.append(request.id)
        if position:
            self._emit(Waiting(request.id, position))
        self._put(_Job(request, perf_counter()), waits=not request.foreground)

    def cancel(self, request_id: str) -> None:
        """Stop a waiting or running request at the next safe point."""
        with self._lock:
            if request_id in self._waiting:
                self._cancelled.add(request_id)

    def overdue(self) -> str:
        """Why the thread will never answer again; empty where it may."""
        if not self._thread.is_alive() and not self._closing:
            return "its thread has ended"
        return self._pulse.overdue()

    def close(self, timeout: float | None = None) -> None:
        """Cancel everything and end the thread; waits ``timeout`` seconds for it."""
        if timeout is not None:
            self._flush_seconds = min(timeout, _FLUSH_SECONDS)
        self._closing = True
        self._put(None)
        self._thread.join(timeout)

    def _put(self, job: _Job | LoadRequest | None, *, waits: bool = True) -> None:
        self._jobs.put((waits, next(self._arrivals), job))

    def _run(self) -> None:
        while not self._closing or self._busy:
            if self._busy:
                self._go_on()
            else:
                self._take(self._next_job())
            self._tell_phases()
        self._forget()
        # mlx 0.32 may abort the process at exit when a thread that computed ends
        # without giving its streams back.
        mx.clear_streams()

    def _next_job(self) -> _Job | LoadRequest | None:
        """The next job; until there is one, what is stored goes to disk."""
        while self._cache is not None and self._write_some(self._cache):
            self._pulse.beat()
            with suppress(queue.Empty):
                return self._jobs.get(timeout=_STEP_SECONDS * self._cache.behind)[2]
        self._pulse.rest()
        while self._memory.wired.nbytes or (self._cache and self._cache.nbytes):
            with suppress(queue.Empty):
                return self._jobs.get(timeout=_IDLE_LOOK_SECONDS)[2]
            self._memory.look(self._cache, busy=False)
        return self._jobs.get()[2]

    @property
    def _busy(self) -> bool:
        return self._lanes is not None and self._lanes.busy

    def _take(self, job: _Job | LoadRequest | None) -> None:
        if isinstance(job, LoadRequest):
            self._load(job)
        elif isinstance(job, _Job):
            self._admit(job)
        else:
            self._forget()

    def _go_on(self) -> None:
        """Let more requests in, and do one step of one or several."""
        lanes = self._lanes
        assert lanes is not None
        self._end_cancelled()
        while (job := self._head()) and lanes.takes(job.request):
            self._admit(self._pop())
        self._step(lanes)
        short = self._memory.look(self._cache)
        lanes.pressed = self._memory.level == "critical"
        if short:
            for event in lanes.suspend():
                self._tell(event)

    def _step(self, lanes: Lanes) -> None:
        events: list[EngineEvent] = []
        before = lanes.rows
        self._pulse.begin()
        for event in lanes.step(alone=self._head() is None):
            events.append(event)
            if isinstance(event, Finished) and lanes.reads_ahead(event.id):
                self._keep_on_disk(event.id)
            if isinstance(event, Finished | Failed):
                self._memory.tell(self._cache)
            self._tell(event)
        rows, context = lanes.rows - before, lanes.context
        slow = self._pulse.end(Unit.of(events, rows=rows, context=context))
        if slow:
            self._emit(Log(level="warn", text=slow))

    def _head(self) -> _Job | None:
        """The next request, unless the model changes before it."""
        with self._jobs.mutex:
            job = self._jobs.queue[0][2] if self._jobs.queue else None
        return job if isinstance(job, _Job) else None

    def _pop(self) -> _Job:
        job = self._jobs.get_nowait()[2]
        assert isinstance(job, _Job)
        return job

    def _end_cancelled(self) -> None:
        """Answer requests that were cancelled before they began."""
        with self._lock:
            cancelled = set(self._cancelled)
        if not cancelled:
            return
        kept, ended = [], []
        with self._jobs.mutex:
            for entry in self._jobs.queue:
                job = entry[2]
                gone = isinstance(job, _Job) and job.request.id in cancelled
                (ended if gone else kept).append(entry)
            self._jobs.queue[:] = kept
            heapify(self._jobs.queue)
        for _, _, job in ended:
            self._tell(_unbegun(job))

    def _forget(self) -> None:
        if self._cache is not None:
            deadline = perf_counter() + self._flush_seconds
            while self._write_some(self._cache) and perf_counter() < deadline:
                if self._cache.behind:
                    time.sleep(_STEP_SECONDS)
            self._cache.close(max(deadline - perf_counter(), 0.0))
        self._loaded = self._cache = self._lanes = None
        self._memory.ledger = MemoryLedger()
        self._memory.wired.end()
        mx.clear_cache()

    def _load(self, request: LoadRequest) -> None:
        self._forget()
        others = mx.get_active_memory()
        try:
            self._loaded = load(request, self._emit)
            self._cache = open_cache(request, self._loaded)
            self._memory.ledger = open_ledger(
                self._loaded, self._cache, shed=self._emit, others=others
            )
            self._most = self._loaded.lanes
            plan = self._loaded.plan
            self._lanes = Lanes(
                self._loaded.target,
                Widths(self._loaded.costs),
                most=self._most,
                ledger=self._memory.ledger,
                rows=plan.rows(self._most) if plan else None,
            )
        except Exception as error:  # noqa: BLE001 - reported to whoever asked
            self._forget()  # half of a model is of no use
            if not isinstance(error, SplashError):
                error = InternalError(f"loading failed: {error!r}")
            self._emit(LoadFailed(error))
            return
        self._memory.limit(plan.budget if plan else 0)
        self._emit(self._loaded)
        if trouble := self._loaded.timed.trouble:
            text = f"{trouble}; what cycles cost is timed again"
            self._emit(Log(level="warn", text=text))
        if request.options.wired:
            weights = self._loaded.target.facts.weight_bytes
            self._memory.wire(weights + self._loaded.draft_bytes)
        self._memory.tell(self._cache)

    def _admit(self, job: _Job) -> None:
        request = job.request
        try:
            if self._is_cancelled(request.id):
                self._tell(_unbegun(job))
                return
            if self._loaded is None or self._lanes is None:
                raise UsageError("no model is loaded", fix=["load one that fits first"])
            drafter = self._loaded.drafter if request.draft else PlainDrafter()
            claim = LaneClaim(self._memory.ledger, lane_size(self._loaded))
            claim.expect(len(request.token_ids))
            task = Task(
                request,
                Means(self._loaded.target, drafter, self._cache, claim=claim),
                lambda: self._is_cancelled(request.id),
                queue_seconds=perf_counter() - job.accepted_at,
                share=self._lanes.share,
            )
            self._memory.begin()
            self._lanes.admit(task)
        except SplashError as error:
            self._tell(Failed(request.id, error))

    def _tell(self, event: EngineEvent) -> None:
        """Give an event out; after the last one of a request its id is free."""
        if isinstance(event, SetAside):
            self._tell_aside(event)
        try:
            self._emit(event)
        finally:
            if isinstance(event, Finished | Failed):
                with self._lock:
                    self._waiting.remove(event.id)
                    self._cancelled.discard(event.id)

    def _tell_aside(self, event: SetAside) -> None:
        level = self._memory.level
        text = (
            f"memory is short: a text of {event.tokens} tokens was set aside, which "
            f"gives back {format_bytes(event.held)}; it goes on when there is room"
        )
        self._emit(
            Shed(
                level=level,
                action="suspend",
                held=event.held,
                id=event.id,
                tokens=event.tokens,
            )
        )
        self._emit(Log(level="warn", text=text))

    def _tell_phases(self) -> None:
        """Say what requests do, where that changed."""
        counts = self._lanes.phases() if self._lanes else {}
        phases = Phases(queued=self._jobs.qsize(), **counts)
        if phases != self._phases:
            self._phases = phases
            self._emit(phases)

    def _keep_on_disk(self, request_id: str) -> None:
        """A prompt read ahead of time shall be there when its request is done."""
        while self._cache is not None and self._write_some(self._cache):
            self._pulse.beat()
            if self._is_cancelled(request_id):
                return
            if self._cache.behind:
                time.sleep(_STEP_SECONDS)
        if self._cache is not None:
            self._cache.settle(_FLUSH_SECONDS)

    def _write_some(self, cache: PrefixCache) -> bool:
        """Bring a little of what is stored to disk; True while there is more."""
        try:
            return cache.write_some()
        except RuntimeError as error:
            if not is_refusal(error):  # else that copy is not made
                raise
            return True

    def _is_cancelled(self, request_id: str) -> bool:
        with self._lock:
            return self._closing or request_id in self._cancelled


def _unbegun(job: _Job) -> Finished:
    """The end of a request that was cancelled while it waited."""
    return Finished(
        id=job.request.id,
        reason="cancelled",
        prompt_tokens=len(job.request.token_ids),
        cached_tokens=0,
        queue_seconds=perf_counter() - job.accepted_at,
        prefill_seconds=0.0,
    )
