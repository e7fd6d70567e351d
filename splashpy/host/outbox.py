# SPDX-License-Identifier: Apache-2.0
"""Events on their way to a client that may read slowly.

Whoever emits never waits: when the queue is full, the text of a cycle joins that of the
cycle before it of the same request. Meters get coarser, text is never dropped.

Cycles of a request that is told in batches wait for each other. On a processor that
also decodes, waking a reader for every one of them costs more than reading it.
"""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import Callable

from splashpy.protocol import Cycle, Done, Event, Failure
from splashpy.wire import to_line

LIMIT = 1024  # events waiting before cycles are merged
_LOOKED_AT = 128  # of them, for one of the same request


class Outbox:
    """A bounded queue in front of a writer thread.

    Args:
        write: sends lines; raises OSError when the reader is gone.
        limit: events waiting before cycles are merged.
    """

    def __init__(self, write: Callable[[bytes], None], *, limit: int = LIMIT):
        self._write = write
        self._limit = limit
        self._events: deque[Event] = deque()
        self._patience: dict[str, float] = {}  # seconds, of requests told in batches
        self._due = math.inf
        self._changed = threading.Condition()
        self._closing = False
        self._thread = threading.Thread(
            target=self._run, name="splashpy-outbox", daemon=True
        )
        self._thread.start()

    def gather(self, request: str, seconds: float) -> None:
        """Tell cycles of a request together; the first one at once.

        Args:
            request: its id, before anything was put of it.
            seconds: a cycle waits for others at most.
        """
        with self._changed:
            self._patience[request] = seconds

    def put(self, event: Event) -> None:
        """Queue an event; never blocks on the reader."""
        with self._changed:
            if len(self._events) < self._limit or not self._joined(event):
                self._events.append(event)
            due = time.monotonic() + self._patience_for(event)
            if due < self._due:
                self._due = due
                self._changed.notify()

    def _patience_for(self, event: Event) -> float:
        """Seconds it may wait for others."""
        if isinstance(event, Cycle):
            return self._patience.get(event.id, 0.0) if event.i else 0.0
        if isinstance(event, Done | Failure):
            self._patience.pop(event.id, None)
        return 0.0

    def close(self, timeout: float | None = None) -> None:
        """Send what is queued, then end the thread."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        self._thread.join(timeout)

    def _joined(self, event: Event) -> bool:
        """Add an event to the latest one of its request; False where that cannot be."""
        if not isinstance(event, Cycle):
            return False
        # Requests run beside each other, so others may have spoken since.
        for index in range(-1, -min(len(self._events), _LOOKED_AT) - 1, -1):
            if getattr(self._events[index], "id", None) == event.id:
                merged = merge(self._events[index], event)
                if merged is not None:
                    self._events[index] = merged
                return merged is not None
        return False

    def _run(self) -> None:
        while events := self._batch():
            try:
                self._write(b"".join(map(to_line, events)))
            except OSError:
                return  # nobody reads any more; the command channel ends the host

    def _batch(self) -> list[Event]:
        """Everything there is, once it is due; nothing at the end."""
        with self._changed:
            while not self._closing and (wait := self._due - time.monotonic()) > 0:
                self._changed.wait(None if wait == math.inf else wait)
            events = list(self._events)
            self._events.clear()
            self._due = math.inf
            return events


def merge(first: Event, second: Event) -> Cycle | None:
    """Two cycles of one request in a row as one; None for anything else."""
    if not isinstance(first, Cycle) or not isinstance(second, Cycle):
        return None
    if first.id != second.id:
        return None
    return Cycle(
        id=first.id,
        i=second.i,
        drafted=first.drafted + second.drafted,
        accepted=first.accepted + second.accepted,
        committed=first.committed + second.committed,
        draft_ms=first.draft_ms + second.draft_ms,
        verify_ms=first.verify_ms + second.verify_ms,
        pieces=(*first.pieces, *second.pieces),
        token_ids=(*first.token_ids, *second.token_ids),
        logprobs=(*first.logprobs, *second.logprobs),
    )
