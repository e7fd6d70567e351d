# SPDX-License-Identifier: Apache-2.0
"""A session joined to an engine: what a person wants is done at once, never awaited."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from splashpy.chat.session import Session
from splashpy.chat.settings import ChatSettings
from splashpy.client.client import EngineClient
from splashpy.client.link import EngineLink
from splashpy.errors import SplashError
from splashpy.protocol import Command, Load

SLOW_STOP_SECONDS = 2.0


class Conversation:
    """Everything the chat screen may do.

    Args:
        connect: returns a started client; called again for every restart.
        load: the model that answers.
        settings: of every request.
        clock: seconds of a steady clock, ``time.perf_counter`` outside tests.
        time_of_day: the present, as shown beside a message.

    Attributes:
        session: the state to draw.
    """

    def __init__(
        self,
        connect: Callable[[], EngineClient],
        load: Load,
        settings: ChatSettings,
        *,
        clock: Callable[[], float],
        time_of_day: Callable[[], str],
    ):
        self.session = Session(load, settings, time_of_day=time_of_day)
        self.now = clock
        self._connect = connect
        self._wake: Callable[[], object] = lambda: None
        self._link: EngineLink | None = None

    def start(self, wake: Callable[[], object]) -> None:
        """Connect to the engine and load the model, in the background.

        Args:
            wake: called from another thread when there is something to take in.
        """
        self._wake = wake
        self._open_link()

    def take_in(self) -> bool:
        """Let everything the engine said change the session.

        Returns:
            Whether there was anything.
        """
        arrivals = self._link.take() if self._link is not None else []
        for at, arrived in arrivals:
            if isinstance(arrived, SplashError):
                self.session.lost(arrived)
            else:
                self._send(self.session.apply(arrived, at))
        return bool(arrivals)

    def submit(self, text: str) -> bool:
        """Send or queue a message; False when one is already waiting."""
        if not self.session.accepts:
            return False
        self._send(self.session.submit(text, self.now()))
        return True

    def stop(self) -> bool:
        """Stop the answer; False when none runs or it is being stopped."""
        commands = self.session.stop(self.now())
        self._send(commands)
        return bool(commands)

    def retry(self) -> bool:
        """Ask again for the last answer; False when that is not possible now."""
        commands = self.session.retry(self.now())
        self._send(commands)
        return bool(commands)

    def begin_anew(self) -> None:
        """Start a new conversation with the same engine."""
        self._send(self.session.new_conversation(self.now()))

    @property
    def restartable(self) -> bool:
        """The engine is gone, or keeps a person waiting."""
        reply = self.session.reply
        if reply is not None and reply.stopping_since is not None:
            return self.now() - reply.stopping_since >= SLOW_STOP_SECONDS
        return self.session.engine.phase in ("dead", "failed", "stuck")

    def restart(self) -> None:
        """End what is left of the engine and start another."""
        self.session.restart()
        self._open_link()

    def close(self) -> None:
        """End the engine; waits for it."""
        if self._link is not None:
            self._link.close()

    def _open_link(self) -> None:
        previous = self._link
        load = self.session.load
        self._link = EngineLink(self._connect, load, self._wake, previous=previous)
        self._link.start()

    def _send(self, commands: Sequence[Command]) -> None:
        for command in commands:
            if self._link is not None:
                self._link.send(command)
