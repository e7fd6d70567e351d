# SPDX-License-Identifier: Apache-2.0
"""Requests that run at a time: who reads, who writes, and when.

A step is one chunk of one prompt, or one cycle of all texts that can share it. A
request alone runs as ``generate`` would run it, with the next cycle in the air. Where
prompts and answers contend, chunks are smaller, and after one the answers go on for as
long as it took. Short prompts are read first, but nobody is overtaken again and again;
the foreground leads. A prompt that begins as one being read waits for it and takes a
copy. Texts under a grammar share cycles of their own, since their parser works on the
host between draft and decision.

What goes wrong in one text ends that request only.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from itertools import takewhile
from time import perf_counter

from splashpy.engine.request import EngineEvent, Failed, GenerationRequest
from splashpy.engine.reuse import lend, reachable
from splashpy.engine.shared_cycle import expected_tokens, launch_together
from splashpy.engine.task import Task
from splashpy.engine.widths import Widths
from splashpy.errors import InternalError, SplashError
from splashpy.models.target import Target

_CONTENDED = 0.5  # of the usual time of a chunk
_OVERTAKEN = 3  # times in a row a prompt lets shorter ones pass
_WORTH_SHARING = 256  # tokens worth waiting for and a copy
_RESERVE = 1024  # rows of an answer that are counted when it begins


class Lanes:
    """The running requests of one model.

    Args:
        target: of all of them.
        widths: decides how much is drafted in shared cycles.
        most: requests at a time.
        rows: their texts may hold together; None where memory is not known.
    """

    def __init__(
        self, target: Target, widths: Widths, *, most: int, rows: int | None = None
    ):
        self._target, self._widths = target, widths
        self._most, self._rows = most, sys.maxsize if rows is None else rows
        self._tasks: list[Task] = []
        self._common: dict[Task, list[tuple[Task, int]]] = {}
        self._overtaken: dict[Task, int] = {}
        self._owed = 0.0  # seconds of cycles before the next chunk
        self._turn = 0

    @property
    def busy(self) -> bool:
        """Whether a request runs."""
        return bool(self._tasks)

    def takes(self, request: GenerationRequest) -> bool:
        """Whether one more may run now."""
        held = sum(_held(task) for task in self._tasks)
        fits = held + _rows(request) <= self._rows
        return not self._tasks or (len(self._tasks) < self._most and fits)

    def admit(self, task: Task) -> None:
        """Let a request run."""
        self._common[task] = [
            (other, common)
            for other in self._tasks
            if (common := _common(task, other)) - task.stored() >= _WORTH_SHARING
        ]
        self._overtaken[task] = 0
        self._tasks.append(task)

    def share(self) -> float:
        """Of the usual time of a chunk, what one may take now."""
        return 1.0 if len(self._tasks) < 2 else _CONTENDED

    def reads_ahead(self, request_id: str) -> bool:
        """Whether this is a prompt read ahead while nobody else runs."""
        requests = [task.request for task in self._tasks]
        return [r.id for r in requests] == [request_id] and requests[0].prefill_only

    def step(self, *, alone: bool) -> Iterator[EngineEvent]:
        """One step of one or several requests.

        Args:
            alone: nobody waits to be let in.
        """
        try:
            if alone and len(self._tasks) == 1:
                yield from self._alone(self._tasks[0])
            else:
                yield from self._contended()
        finally:
            self._tasks = [task for task in self._tasks if not task.ended]
            for kept in (self._common, self._overtaken):
                for task in [task for task in kept if task.ended]:
                    del kept[task]

    def _alone(self, task: Task) -> Iterator[EngineEvent]:
        self._owed = 0.0
        yield from _guarded(task, task.write() if task.writing else _next(task))

    def _contended(self) -> Iterator[EngineEvent]:
        for task in self._tasks:
            if task.flying:
                yield from _guarded(task, task.land())
                return
        writers = [task for task in self._tasks if task.writing]
        reader = self._reader()
        began = perf_counter()
        if reader is not None and (not writers or self._owed <= 0):
            yield from _guarded(reader, self._read(reader))
            self._owed = perf_counter() - began
        else:
            yield from self._cycle(self._cohort(writers))
            self._owed = self._owed - (perf_counter() - began) if reader else 0.0

    def _reader(self) -> Task | None:
        """Whose prompt is read next: the shortest, unless it overtakes too often."""
        waiting = [t for t in self._tasks if not t.writing and not self._waits(t)]
        if not waiting:
            return None
        first = waiting[0]
        chosen = min(waiting, key=lambda t: (not t.request.foreground, t.left))
        if chosen is not first and self._overtaken[first] >= _OVERTAKEN:
            chosen = first
        if chosen is first:
            self._overtaken[first] = 0
        else:
            self._overtaken[first] += 1
        return chosen

    def _waits(self, task: Task) -> bool:
        """Whether another request is reading what this prompt begins with."""
        if task.sequence is not None or task.cancelled:
            return False
        for other, common in self._common[task]:
            if other.ended or other.writing:
                continue
            if other.sequence is None:
                return True
            place = reachable(other.sequence, common)
            if place >= _WORTH_SHARING and other.sequence.state.length < place:
                return True
        return False

    def _read(self, task: Task) -> Iterator[EngineEvent]:
        if task.sequence is None:
            self._borrow(task)
        yield from _next(task)

    def _borrow(self, task: Task) -> None:
        """Let the cache have what a running request can lend this one."""
        running = [
            (common, other.sequence)
            for other, common in self._common[task]
            if other.sequence is not None and not other.ended
        ]
        cache = task.cache
        if running and cache is not None:
            common, sequence = max(running, key=lambda pair: pair[0])
            lend(sequence, common, cache)

    def _cohort(self, writers: Sequence[Task]) -> list[Task]:
        """Who shares the next cycle; cohorts take turns."""
        bound = [task for task in writers if task.request.grammar is not None]
        free = [task for task in writers if task.request.grammar is None]
        cohorts = [group for group in (free, bound) if group]
        if len(writers) > 1 and not self._target.shares():
            cohorts = [[task] for task in writers]
        self._turn += 1
        return cohorts[self._turn % len(cohorts)]

    def _cycle(self, cohort: Sequence[Task]) -> Iterator[EngineEvent]:
        began = perf_counter()
        sequences = [task.begun for task in cohort]
        most = self._widths.choose([expected_tokens(each) for each in sequences])
        try:
            flights = launch_together(sequences, self._target, most)
        except Exception as error:  # noqa: BLE001 - the engine is no longer sound
            for task in cohort:
                yield _failed(task, error)
            return
        self._widths.note(len(cohort), most, perf_counter() - began)
        for task, flight in zip(cohort, flights, strict=True):
            if isinstance(flight, SplashError):
                yield _failed(task, flight)
            else:
                yield from _guarded(task, task.settle(flight))


def _next(task: Task) -> Iterator[EngineEvent]:
    if task.sequence is not None:
        return task.read()
    return task.give_up() if task.cancelled else task.begin()


def _guarded(task: Task, events: Iterator[EngineEvent]) -> Iterator[EngineEvent]:
    """Events of one request, whose error ends nobody else."""
    try:
        yield from events
    except Exception as error:  # noqa: BLE001 - told to whoever asked
        yield _failed(task, error)


def _failed(task: Task, error: Exception) -> Failed:
    task.ended = True
    if isinstance(error, SplashError):
        return Failed(task.request.id, error)
    return Failed(task.request.id, InternalError(repr(error)), fatal=True)


def _held(task: Task) -> int:
    """Rows a running text has or may soon have."""
    written = task.sequence.state.length if task.sequence else 0
    return max(_rows(task.request), written)


def _rows(request: GenerationRequest) -> int:
    wanted = request.max_new_tokens
    answer = _RESERVE if wanted is None else min(wanted, _RESERVE)
    return len(request.token_ids) + answer


def _common(task: Task, other: Task) -> int:
    """Tokens two prompts begin with alike; the last one is always read."""
    pairs = zip(task.request.token_ids[:-1], other.request.token_ids, strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
