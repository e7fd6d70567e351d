# SPDX-License-Identifier: Apache-2.0
"""One request at the engine, and what becomes of it when the engine dies.

As long as nothing of its answer was passed on, a request can begin anew at the next
engine, and whoever waits sees nothing but a delay. Once something was, it fails: the
rest of another draw does not fit to it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from splashpy.protocol import (
    Accepted,
    Cancel,
    Command,
    Cycle,
    Done,
    Event,
    Generate,
    Prefill,
    ToolDelta,
)
from splashpy.server.errors import ApiError


@dataclass(frozen=True, slots=True)
class Anew:
    """The engine died and the request begins again: what came before counts no more."""


Arrived = Event | Anew


class Running:
    """One request at the engine.

    Args:
        command: what the engine is asked.
        send: hands a command to the engine.
        forget: called with the id when nobody waits any more.

    Attributes:
        ended: nothing more comes.
        told: something of the answer was passed on; set by whoever does that.
        at_engine: the present engine has it.
        accepted: the present engine found it sound.
        begun: the present engine works on it.
        blamed: the present engine said that it failed on this one.
        deaths: engines that died while they worked on it.
    """

    def __init__(
        self,
        command: Generate,
        send: Callable[[Command], None],
        forget: Callable[[str], None],
    ) -> None:
        self._send, self._forget = send, forget
        self.command = command
        self.ended = self.told = False
        self.at_engine = self.accepted = self.begun = self.blamed = False
        self.deaths = 0
        self._arrived: deque[Arrived | ApiError] = deque()
        self._more = asyncio.Event()

    def put(self, arrived: Arrived | ApiError) -> None:
        """Hand over what arrived for this request."""
        self.accepted = self.accepted or isinstance(arrived, Accepted)
        self.begun = self.begun or isinstance(arrived, Prefill | Cycle | ToolDelta)
        self._arrived.append(arrived)
        self._more.set()

    def put_back(self, event: Event) -> None:
        """Have an event come again, as the next one."""
        self._arrived.appendleft(event)

    async def next(self, seconds: float | None) -> Arrived | None:
        """What comes next; None when nothing came within ``seconds``.

        Raises:
            ApiError: the request failed.
        """
        try:
            # Not wait_for: in Python 3.11 it may swallow a cancellation.
            async with asyncio.timeout(seconds):
                while not self._arrived:
                    self._more.clear()
                    await self._more.wait()
        except TimeoutError:
            return None
        arrived = self._arrived.popleft()
        self.ended = self.ended or isinstance(arrived, Done | ApiError)
        if isinstance(arrived, ApiError):
            raise arrived
        return arrived

    def cancel(self) -> None:
        """Stop it; its ``Done`` still comes."""
        if not self.ended:
            self._send(Cancel(id=self.command.id))

    def leave(self) -> None:
        """Stop it and forget it."""
        self.cancel()
        self.ended = True
        self._forget(self.command.id)

    def begin_anew(self) -> None:
        """Its engine is gone: what nobody has seen yet is void."""
        self._arrived.clear()
        self.at_engine = self.accepted = self.begun = self.blamed = False
        self.put(Anew())


def suspects(running: list[Running]) -> list[Running]:
    """The requests an engine may have died of, the likeliest kind only.

    The one it named; else those it worked on; else those whose text it was reading;
    else all it had.
    """
    there = [one for one in running if one.at_engine]
    for found in (
        [one for one in there if one.blamed],
        [one for one in there if one.begun],
        [one for one in there if not one.accepted],
    ):
        if found:
            return found
    return there
