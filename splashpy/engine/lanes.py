# SPDX-License-Identifier: Apache-2.0
"""Requests that run at a time: who reads, who writes, and when.

A step is one chunk of one prompt, or one cycle of all texts that can share it. A
request alone runs as ``generate`` would run it, with the next cycle in the air. Where
prompts and answers contend, chunks are smaller, and after one the answers go on for as
long as it took. Texts under a grammar share cycles of their own, since their parser
works on the host between draft and decision.

Where memory is refused, the newest text is set aside: its tokens are kept, its rows are
not. It is taken up again, one at a time and before anybody new, when there is room, and
reads what it had read. What goes wrong in one text ends that request only.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from time import perf_counter

from splashpy.engine.memory_ledger import MemoryLedger, is_refusal
from splashpy.engine.reading_order import ReadingOrder
from splashpy.engine.request import EngineEvent, Failed, GenerationRequest, SetAside
from splashpy.engine.shared_cycle import expected_tokens, launch_together
from splashpy.engine.task import Task
from splashpy.engine.widths import Widths
from splashpy.errors import InternalError, ShortageError, SplashError
from splashpy.models.target import Target
from splashpy.protocol import Phase

_CONTENDED = 0.5  # of the usual time of a chunk
_RESERVE = 1024  # rows of an answer that are counted when it begins
_PASS = 8  # rows the next pass may add to a text
_ROOM = 256  # rows more than a text has, for it to be taken up again
_REMEMBERED = 600.0  # seconds; other programs may have ended since MLX was refused


class Lanes:
    """The running requests of one model.

    Args:
        target: of all of them.
        widths: decides how much is drafted in shared cycles.
        most: requests at a time.
        ledger: their claims are made of, and who gives back for them.
        rows: their texts may have together when one is let in; None where memory is
            not known.
        clock: seconds.

    Attributes:
        pressed: the computer is short of memory, so nobody begins beside others.
    """

    def __init__(
        self,
        target: Target,
        widths: Widths,
        *,
        most: int,
        ledger: MemoryLedger | None = None,
        rows: int | None = None,
        clock: Callable[[], float] = perf_counter,
    ):
        self._target, self._widths = target, widths
        self._most, self._ledger = most, ledger or MemoryLedger()
        self._rows = sys.maxsize if rows is None else rows
        self._refusal = sys.maxsize, float("-inf")  # rows MLX had memory for, and when
        self._clock = clock
        self._all: list[Task] = []  # in the order they were let in
        self._order = ReadingOrder()
        self._owed = 0.0  # seconds of cycles before the next chunk
        self._turn = 0
        self.pressed = False

    @property
    def busy(self) -> bool:
        """Whether a request runs or was set aside."""
        return bool(self._all)

    @property
    def context(self) -> int:
        """Rows of the longest text."""
        return max(self._lengths, default=0)

    @property
    def rows(self) -> int:
        """Rows of all texts."""
        return sum(self._lengths)

    def phases(self) -> Counter[Phase]:
        """How many requests do what."""
        return Counter(
            "waiting_prefix" if self._order.waits(task) else task.phase
            for task in self._all
        )

    def takes(self, request: GenerationRequest) -> bool:
        """Whether one more may run now."""
        if not self._all:
            return True
        free = len(self._all) < self._most and not self.pressed and not self._aside
        wanted = self._held + _rows(request)
        return free and wanted <= min(self._rows, self._proven)

    def admit(self, task: Task) -> None:
        """Let a request run."""
        self._order.admit(task, self._running)
        self._all.append(task)

    def share(self) -> float:
        """Of the usual time of a chunk, what one may take now."""
        return 1.0 if len(self._running) < 2 else _CONTENDED

    def reads_ahead(self, request_id: str) -> bool:
        """Whether this is a prompt read ahead while nobody else runs."""
        requests = [task.request for task in self._all]
        return [r.id for r in requests] == [request_id] and requests[0].prefill_only

    def step(self, *, alone: bool) -> Iterator[EngineEvent]:
        """One step of one or several requests.

        Args:
            alone: nobody waits to be let in.
        """
        try:
            yield from self._end_cancelled()
            yield from self._make_room()
            running = self._running
            if alone and len(running) == 1:
                yield from self._alone(running[0])
            elif running:
                yield from self._contended(running)
        finally:
            self._all = [task for task in self._all if not task.ended]
            self._order.sweep()

    def suspend(self) -> Iterator[EngineEvent]:
        """Set the newest text aside, the foreground last; never the only one."""
        if len(self._running) < 2:
            return
        task = self._newest
        yield from self._guarded(task, task.land())
        if not task.ended and not task.aside:
            yield self._set_aside(task)

    # --- memory -------------------------------------------------------------------

    @property
    def _lengths(self) -> list[int]:
        texts = (task.sequence for task in self._all)
        return [text.state.length for text in texts if text is not None]

    @property
    def _running(self) -> list[Task]:
        return [task for task in self._all if not task.aside and not task.ended]

    @property
    def _newest(self) -> Task:
        """Who is set aside next: those in the foreground last."""
        running = self._running
        return ([t for t in running if not t.request.foreground] or running)[-1]

    @property
    def _aside(self) -> list[Task]:
        return [task for task in self._all if task.aside and not task.ended]

    @property
    def _proven(self) -> int:
        """Rows MLX had memory for when it had none for more, not long ago."""
        rows, at = self._refusal
        return rows if self._clock() - at < _REMEMBERED else sys.maxsize

    @property
    def _held(self) -> int:
        return sum(map(_held, self._running))

    def _make_room(self) -> Iterator[EngineEvent]:
        """Let run what memory allows: fewer where it refused, one more where not."""
        while len(self._running) > 1 and self._held > self._proven:
            yield from self.suspend()
        for task in self._aside[:1]:
            if self._may_go_on(task):
                yield from self._take_up(task)

    def _may_go_on(self, task: Task) -> bool:
        running = self._running
        if not running:
            return True
        busy = self.pressed or any(other.restoring for other in running)
        wanted = _held(task) + _ROOM
        proven = self._held + wanted <= self._proven
        return not busy and proven and task.has_room(wanted)

    def _take_up(self, task: Task) -> Iterator[EngineEvent]:
        try:
            task.take_up()
        except Exception as error:  # noqa: BLE001 - told to whoever asked
            if not (isinstance(error, ShortageError) and self._running):
                yield from self._broken([task], error)

    def _set_aside(self, task: Task) -> SetAside:
        return SetAside(task.request.id, task.rows, task.set_aside())

    def _retreat(
        self, tasks: Sequence[Task], error: Exception
    ) -> Iterator[EngineEvent]:
        """MLX got no memory in a step of these texts, whose rows may be broken.

        They are set aside, and the newest one too. A text that is alone begins again
        once what is stored was given up; if nothing is, it fails.
        """
        running = self._running
        freed = self._ledger.drop_stored()
        if len(running) < 2 and not freed:
            yield _failed(tasks[0], _too_large(tasks[0], error))
            return
        if len(running) > 1:
            held = self._held - _held(running[-1])
            self._refusal = min(self._proven, held), self._clock()
        for task in running:
            if task in tasks or task is running[-1]:
                yield self._set_aside(task)

    # --- steps --------------------------------------------------------------------

    def _end_cancelled(self) -> Iterator[EngineEvent]:
        for task in self._all:
            if task.cancelled:
                yield from self._guarded(task, task.give_up())

    def _alone(self, task: Task) -> Iterator[EngineEvent]:
        self._owed = 0.0
        yield from self._guarded(task, task.write() if task.writing else _next(task))

    def _contended(self, running: Sequence[Task]) -> Iterator[EngineEvent]:
        for task in running:
            if task.flying:
                yield from self._guarded(task, task.land())
                return
        writers = [task for task in running if task.writing]
        reader = self._order.next(running)
        began = self._clock()
        if reader is not None and (not writers or self._owed <= 0):
            yield from self._guarded(reader, self._read(reader))
            self._owed = self._clock() - began
        else:
            yield from self._cycle(self._cohort(writers))
            self._owed = self._owed - (self._clock() - began) if reader else 0.0

    def _read(self, task: Task) -> Iterator[EngineEvent]:
        if task.sequence is None:
            self._order.borrow(task)
        yield from _next(task)

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
        began, running = self._clock(), len(self._running)
        sequences = [task.begun for task in cohort]
        most = self._widths.choose([expected_tokens(each) for each in sequences])
        try:
            flights = launch_together(sequences, self._target, most)
        except Exception as error:  # noqa: BLE001 - told to whoever asked
            yield from self._broken(cohort, error)
            return
        self._widths.note(len(cohort), most, self._clock() - began)
        refused: list[tuple[Task, ShortageError]] = []
        for task, flight in zip(cohort, flights, strict=True):
            if isinstance(flight, ShortageError):
                refused.append((task, flight))
            elif isinstance(flight, SplashError):
                yield _failed(task, flight)
            else:
                yield from self._guarded(task, task.settle(flight))
        if len(self._running) < running:
            return  # one has ended, and left its memory: who was refused asks again
        for task, error in refused[:1]:
            yield from self._broken([task], error)

    def _guarded(
        self, task: Task, events: Iterator[EngineEvent]
    ) -> Iterator[EngineEvent]:
        """Events of one request, whose error ends nobody else."""
        try:
            yield from events
        except Exception as error:  # noqa: BLE001 - told to whoever asked
            yield from self._broken([task], error)

    def _broken(self, tasks: Sequence[Task], error: Exception) -> Iterator[EngineEvent]:
        if is_refusal(error):
            yield from self._retreat(tasks, error)
        elif isinstance(error, ShortageError) and len(self._running) > 1:
            yield from self.suspend()
        else:
            for task in tasks:
                yield _failed(task, error)


def _next(task: Task) -> Iterator[EngineEvent]:
    return task.begin() if task.sequence is None else task.read()


def _failed(task: Task, error: Exception) -> Failed:
    task.abandon()
    if isinstance(error, SplashError):
        return Failed(task.request.id, error)
    return Failed(task.request.id, InternalError(repr(error)), fatal=True)


def _too_large(task: Task, error: Exception) -> ShortageError:
    return ShortageError(
        f"memory does not suffice to go on with this text of {_held(task)} tokens",
        why=f"nothing else runs, and what was stored is given up: {error}",
        fix=[
            "ask with a shorter prompt, or for a shorter answer",
            "--kv q8, or close other programs",
        ],
    )


def _held(task: Task) -> int:
    """Rows a running text has or may soon have; those one that is aside will have."""
    most = len(task.request.token_ids) + task.budget
    return min(max(_rows(task.request), task.rows + _PASS), most)


def _rows(request: GenerationRequest) -> int:
    wanted = request.max_new_tokens
    answer = _RESERVE if wanted is None else min(wanted, _RESERVE)
    return len(request.token_ids) + answer
