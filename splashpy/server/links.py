# SPDX-License-Identifier: Apache-2.0
"""The present engine, and the one before it, which must be gone before another starts.

Threads of ``client/link.py`` speak to an engine; what arrives is taken on the loop, and
only from the present one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from splashpy.client.client import EngineClient
from splashpy.client.link import EngineLink
from splashpy.errors import SplashError
from splashpy.protocol import Command, Event, Load

_STUCK_SECONDS = 30.0  # a host that reads a very long prompt may be silent for a while


class Links:
    """At most one engine at a time.

    Args:
        connect: returns a started client; called for every engine.
        take: gets what arrives, in order.
    """

    def __init__(
        self,
        connect: Callable[[], EngineClient],
        take: Callable[[Event | SplashError], None],
    ) -> None:
        self._connect, self._take = connect, take
        self._present: EngineLink | None = None
        self._dead: EngineLink | None = None
        self._ending: asyncio.Task[None] | None = None

    def start(self, load: Load) -> None:
        """Start an engine that loads a model; returns at once."""
        loop = asyncio.get_running_loop()

        def wake() -> None:
            loop.call_soon_threadsafe(self._hand_over, link)

        previous, self._dead = self._dead, None
        link = EngineLink(
            self._connect, load, wake, previous=previous, stuck_seconds=_STUCK_SECONDS
        )
        self._present = link
        link.start()

    def send(self, command: Command) -> None:
        """Hand a command to the engine, if there is one."""
        if self._present is not None:
            self._present.send(command)

    def lose(self) -> None:
        """The present engine died or hangs; the next ``start`` ends it for certain."""
        self._dead, self._present = self._present, None

    def bury(self) -> None:
        """End the one that died in the background: no other follows."""
        self._end_in_background(self._dead, lambda: None, now=True)

    def put_away(self, then: Callable[[], None]) -> None:
        """End the present engine in the background, which frees its memory.

        Args:
            then: called when it is gone.
        """
        link, self._present = self._present, None
        self._end_in_background(link, then, now=False)

    async def close(self) -> None:
        """End all engines; waits until they are gone."""
        if self._ending is not None:
            await self._ending
        for link in (self._present, self._dead):
            if link is not None:
                await asyncio.to_thread(link.close, now=link is self._dead)

    def kill(self) -> None:
        """End all engines at once, from any thread."""
        for link in (self._present, self._dead):
            if link is not None:
                link.close(now=True)

    def _hand_over(self, link: EngineLink) -> None:
        for _, arrived in link.take():
            if link is not self._present:
                return
            self._take(arrived)

    def _end_in_background(
        self, link: EngineLink | None, then: Callable[[], None], *, now: bool
    ) -> None:
        async def end() -> None:
            if link is not None:
                await asyncio.to_thread(link.close, now=now)
            then()

        self._ending = asyncio.get_running_loop().create_task(end())
