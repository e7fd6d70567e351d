# SPDX-License-Identifier: Apache-2.0
"""Requests at the engine and on their way to it.

An engine gets them in their order. When it dies, those of which nothing was passed on
begin anew at the next one, and those it may have died of are tried one at a time.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from splashpy.errors import SplashError
from splashpy.protocol import Command, Cycle, Done, Event, Failure, Generate, Prefill
from splashpy.server.errors import ApiError, engine_away, from_failure
from splashpy.server.running import Running, suspects

_MOST_DEATHS = 1  # of engines that worked on a request that still begins anew


class UnderWay:
    """All requests that have not ended.

    Args:
        send: hands a command to the engine.
        left: called when one has ended.

    Attributes:
        running: all of them by id, in the order they came.
        replayed: requests that began anew.
        units: chunks and cycles the present engine did for the one that got most.
    """

    def __init__(
        self, send: Callable[[Command], None], left: Callable[[], None]
    ) -> None:
        self._send, self._left = send, left
        self.running: dict[str, Running] = {}
        self._units: dict[str, int] = {}
        self.replayed = self.units = 0

    def begin(self, command: Generate) -> Running:
        """Keep a request; the engine gets it with the next ``hand_over``."""
        running = Running(command, self._send, self.forget)
        self.running[command.id] = running
        return running

    def forget(self, name: str) -> None:
        """Drop what still arrives for a request."""
        self.running.pop(name, None)
        self._units.pop(name, None)
        self._left()

    def hand_over(self) -> None:
        """Give the engine what it does not have yet.

        Of those under which an engine died only one at a time: should the next engine
        die as well, it is known of which. It goes before those that wait, since it was
        before them already.
        """
        alone = any(one.at_engine and one.deaths for one in self.running.values())
        for running in self.running.values():
            if running.at_engine or (running.deaths and alone):
                continue
            command = running.command
            if running.deaths:
                alone = True
                command = replace(command, foreground=True)
            running.at_engine = True
            self._send(command)

    def take(self, name: str, event: Event, context: int) -> None:
        """Hand over what arrived for a request.

        Args:
            name: of the request.
            event: about it.
            context: tokens of the engine's context, for errors.
        """
        running = self.running[name]
        self._count(name, event)
        if isinstance(event, Failure):
            running.put(from_failure(event, context))
        else:
            running.put(event)
        if isinstance(event, Done | Failure):
            self.forget(name)

    def blame(self, name: str) -> None:
        """A dying engine reports itself by dying; this says of what."""
        running = self.running.get(name)
        if running is not None:
            running.blamed = True

    def drop(self, running: Running, error: ApiError) -> None:
        """End a request with an error."""
        running.leave()
        running.put(error)

    def drop_all(
        self, error: Callable[[], ApiError], *, begun: bool | None = None
    ) -> None:
        """End requests with an error.

        Args:
            error: of each.
            begun: only those the engine works on, or does not; None: all.
        """
        for running in list(self.running.values()):
            if begun is None or running.begun == begun:
                self.drop(running, error())

    def judge(self, error: SplashError) -> None:
        """The engine died: decide who begins anew and who fails."""
        under_way = list(self.running.values())
        for running in suspects(under_way):
            running.deaths += 1
        for running in under_way:
            if running.told:
                self.drop(running, engine_away(error))
            elif running.deaths > _MOST_DEATHS:
                self.drop(running, _poisoned(error))
            elif running.at_engine:
                running.begin_anew()
                self.replayed += 1
        self._units, self.units = {}, 0

    def _count(self, name: str, event: Event) -> None:
        step = isinstance(event, Cycle) and event.i > 0
        chunk = isinstance(event, Prefill) and event.processed > event.cached
        if step or chunk:
            self._units[name] = self._units.get(name, 0) + 1
            self.units = max(self.units, self._units[name])


def _poisoned(error: SplashError) -> ApiError:
    return ApiError(
        "engine_failed",
        "the engine died twice while it worked on this request, which is not tried "
        f"again: {error.message}",
        status=500,
    )
