# SPDX-License-Identifier: Apache-2.0
"""Whose prompt is read next, and who waits for what another is reading.

Short prompts are read first, but nobody is overtaken again and again; the foreground
leads. A prompt that begins as one being read waits for it and takes a copy.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import takewhile

from splashpy.engine.reuse import lend, reachable
from splashpy.engine.task import Task

_OVERTAKEN = 3  # times in a row a prompt lets shorter ones pass
_WORTH_SHARING = 256  # tokens worth waiting for and a copy


class ReadingOrder:
    """The order of prompts that are read beside each other."""

    def __init__(self) -> None:
        self._common: dict[Task, list[tuple[Task, int]]] = {}
        self._overtaken: dict[Task, int] = {}

    def admit(self, task: Task, others: Iterable[Task]) -> None:
        """Take a request in beside those that run."""
        self._common[task] = [
            (other, common)
            for other in others
            if (common := _common(task, other)) - task.stored() >= _WORTH_SHARING
        ]
        self._overtaken[task] = 0

    def sweep(self) -> None:
        """Forget requests that have ended."""
        for kept in (self._common, self._overtaken):
            for task in [task for task in kept if task.ended]:
                del kept[task]

    def next(self, tasks: Iterable[Task]) -> Task | None:
        """Whose prompt is read next: the shortest, unless it overtakes too often.

        Args:
            tasks: that run, in the order of their arrival.
        """
        ready = [t for t in tasks if not t.writing and not self.waits(t)]
        if not ready:
            return None
        first = ready[0]
        chosen = min(ready, key=lambda t: (not t.request.foreground, t.left))
        if chosen is not first and self._overtaken[first] >= _OVERTAKEN:
            chosen = first
        if chosen is first:
            self._overtaken[first] = 0
        else:
            self._overtaken[first] += 1
        return chosen

    def waits(self, task: Task) -> bool:
        """Whether another request is reading what this prompt begins with."""
        if task.sequence is not None or task.aside:
            return False
        for other, common in self._common[task]:
            if other.ended or other.aside or other.writing:
                continue
            if other.sequence is None:
                return True
            place = reachable(other.sequence, common)
            if place >= _WORTH_SHARING and other.sequence.state.length < place:
                return True
        return False

    def borrow(self, task: Task) -> None:
        """Let the cache have what a running request can lend this one."""
        running = [
            (common, other.sequence)
            for other, common in self._common[task]
            if other.sequence is not None and not other.ended and not other.aside
        ]
        cache = task.cache
        if running and cache is not None:
            common, sequence = max(running, key=lambda pair: pair[0])
            lend(sequence, common, cache)


def _common(task: Task, other: Task) -> int:
    """Tokens two prompts begin with alike; the last one is always read."""
    pairs = zip(task.request.token_ids[:-1], other.request.token_ids, strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
