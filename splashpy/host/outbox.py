# SPDX-License-Identifier: Apache-2.0
"""Events on their way to a client that may read slowly.

Whoever emits never waits: when the queue is full, the text of a cycle joins that of the
cycle before it of the same request. Meters get coarser, text is never dropped.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable

from splashpy.protocol import Cycle, Event
from splashpy.wire import to_line

LIMIT = 1024  # events waiting before cycles are merged
_LOOKED_AT = 128  # of them, for one of the same request


class Outbox:
    """A bounded queue in front of a writer thread.

    Args:
        write: sends one line; raises OSError when the reader is gone.
        limit: events waiting before cycles are merged.
    """

    def __init__(self, write: Callable[[bytes], None], *, limit: int = LIMIT):
        self._write = write
        self._limit = limit
        self._events: deque[Event] = deque()
        self._changed = threading.Condition()
        self._closing = False
        self._thread = threading.Thread(
            target=self._run, name="splashpy-outbox", daemon=True
        )
        self._thread.start()

    def put(self, event: Event) -> None:
        """Queue an event; never blocks on the reader."""
        with self._changed:
            if len(self._events) < self._limit or not self._joined(event):
                self._events.append(event)
            self._changed.notify()

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
        while True:
            with self._changed:
                while not self._events and not self._closing:
                    self._changed.wait()
                if not self._events:
                    return
                event = self._events.popleft()
            try:
                self._write(to_line(event))
            except OSError:
                return  # nobody reads any more; the command channel ends the host


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
