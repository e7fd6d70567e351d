# SPDX-License-Identifier: Apache-2.0
"""A session joined to an engine: what a person wants is done at once, never awaited."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from splashpy.chat.entries import Attachment, Reply, UserMessage
from splashpy.chat.fit import Offer
from splashpy.chat.keeper import UNSAID, Keeper
from splashpy.chat.session import Session
from splashpy.chat.settings import ChatSettings
from splashpy.chat.store import Draft
from splashpy.client.client import EngineClient
from splashpy.client.link import EngineLink
from splashpy.errors import SplashError, UsageError
from splashpy.protocol import Command, Load

SLOW_STOP_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class Machine:
    """What the chat may ask about this machine; all may take their time.

    Attributes:
        offers: models one could talk with.
        free_memory: bytes no program uses; None where the platform does not say.
        log: where the engine's log is, and its end.
        doctor: what runs here, in a few lines.
        explain: what an error code means; empty for others.
    """

    offers: Callable[[], list[Offer]] = list
    free_memory: Callable[[], int | None] = lambda: None
    log: Callable[[], str] = lambda: ""
    doctor: Callable[[], str] = lambda: ""
    explain: Callable[[str], str] = lambda topic: ""


class Conversation:
    """Everything the chat screen may do.

    Args:
        connect: returns a started client; called again for every restart.
        load: the model that answers.
        settings: of every request.
        clock: seconds of a steady clock, ``time.perf_counter`` outside tests.
        time_of_day: the present, as shown beside a message.
        keeper: writes everything to disk; None keeps nothing.

    Attributes:
        machine: what else the chat may ask about this machine.
        session: the state to draw.
        editing: the message that the next one is another wording of.
    """

    def __init__(
        self,
        connect: Callable[[], EngineClient],
        load: Load,
        settings: ChatSettings,
        *,
        clock: Callable[[], float],
        time_of_day: Callable[[], str],
        keeper: Keeper | None = None,
    ):
        self.session = Session(load, settings, time_of_day=time_of_day)
        self.now = clock
        self._first_settings = settings
        self.keeper = keeper
        self.machine = Machine()
        self.editing: UserMessage | None = None
        self._connect = connect
        self._wake: Callable[[], object] = lambda: None
        self._link: EngineLink | None = None

    def start(self, wake: Callable[[], object]) -> None:
        """Connect to the engine and load the model, in the background.

        Args:
            wake: called from another thread when there is something to take in. A
                second call only replaces it: another screen shows the same engine.
        """
        self._wake = wake
        if self._link is None:
            self._open_link()
        else:
            wake()

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

    def submit(self, text: str, files: Sequence[Attachment] = ()) -> bool:
        """Send a message or let it wait; an engine that is gone is started for it.

        Args:
            text: of the message.
            files: to put before the text.

        Returns:
            False when it can be neither: one is already waiting, or it is another
            wording of an earlier message while an answer runs.
        """
        if self.editing is not None:
            if not self.session.idle:
                return False
            message, self.editing = self.editing, None
            self._send(self.session.edit(message, text, self.now(), files))
            return True
        if not self.session.accepts:
            return False
        if self.session.engine.phase in ("dead", "failed"):
            self.restart()  # the message waits until it is ready
        self._send(self.session.submit(text, self.now(), files))
        return True

    def stop(self) -> bool:
        """Stop the answer; False when none runs or it is being stopped."""
        commands = self.session.stop(self.now())
        self._send(commands)
        return bool(commands)

    def retry(self, reply: Reply | None = None) -> bool:
        """Ask again for an answer, the last one by default.

        Returns:
            False when that is not possible now.
        """
        commands = self.session.retry(self.now(), reply)
        self._send(commands)
        return bool(commands)

    def count(self, draft: str, files: Sequence[Attachment] = ()) -> None:
        """Have the next prompt counted; the session learns it later."""
        self._send(self.session.count(draft, files))

    def compact(self, turns: int) -> bool:
        """Have the oldest turns summed up; False when that is not possible now."""
        commands = self.session.compact(turns, self.now())
        self._send(commands)
        return bool(commands)

    def change_model(self, offer: Offer) -> None:
        """End the engine and start one with another model.

        A drafter that was named belongs to the present model and stays behind.

        Raises:
            UsageError: the model is a server's.
        """
        self._own_engine()
        self.session.load = Load(
            model=offer.path,
            name=offer.name,
            revision=offer.revision,
            options=replace(self.session.load.options, draft=None),
        )
        self.restart()

    def race(self, text: str = "") -> bool:
        """Answer a message, the last one by default, with drafts and without.

        Returns:
            False when that is not possible now.
        """
        commands = self.session.race(self.now(), text)
        self._send(commands)
        return bool(commands)

    def resume(self) -> bool:
        """Go on with an answer that broke off; False when there is none."""
        commands = self.session.resume(self.now())
        self._send(commands)
        return bool(commands)

    def unload(self) -> bool:
        """Free the model until the next message; False when that is impossible now.

        Raises:
            UsageError: the model is a server's.
        """
        self._own_engine()
        commands = self.session.unload()
        self._send(commands)
        return bool(commands)

    def _own_engine(self) -> None:
        server = self.session.settings.server
        if server:
            raise UsageError(
                f"the model is that of the server at {server}",
                fix=["splashpy chat --no-attach", "splashpy stop"],
            )

    def begin_anew(self) -> None:
        """Start a new conversation with the same engine."""
        self.keep()
        self.editing = None
        self.session.settings = self._first_settings
        self._send(self.session.new_conversation(self.now()))

    def open(self, name: str) -> Draft:
        """Go on with a saved conversation.

        Args:
            name: its id.

        Returns:
            What was written there and not sent.

        Raises:
            SplashError: it cannot be read, or nothing is saved.
        """
        self.keep()
        saved, tree, draft = self.archive.open(name)
        self.editing = None
        self._send(self.session.open(tree))
        settings = self.session.settings.with_parameters(saved.parameters)
        self.session.settings = replace(settings, system=saved.system)
        return draft

    def unsent(self) -> Draft:
        """What was written before anything was said, and not sent."""
        try:
            return self.archive.ask(lambda store: store.draft(UNSAID))
        except SplashError:  # nothing is saved, or the keeper told why it cannot
            return Draft()

    def keep_draft(self, text: str, files: Sequence[Attachment]) -> None:
        """Keep what stands in the editor, and the files that would go with it."""
        if self.keeper is not None:
            queued = self.session.queued
            waiting = () if queued is None else self.session.queued_files
            self.keeper.note_draft(Draft(text, queued, (*waiting, *files)))

    @property
    def archive(self) -> Keeper:
        """Where conversations are kept.

        Raises:
            UsageError: nothing is saved in this chat.
        """
        if self.keeper is None:
            raise UsageError("nothing is saved in this chat", why="--no-save was given")
        return self.keeper

    def keep(self) -> None:
        """Write what changed to disk, without waiting for it."""
        if self.keeper is not None:
            self.keeper.note(self.session, self.now())

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
        """End the engine and finish writing; waits for both."""
        if self._link is not None:
            self._link.close()
        if self.keeper is not None:
            self.take_in()
            self.session.leave()
            self.keep()
            self.keeper.close()

    def _open_link(self) -> None:
        previous = self._link
        load = self.session.load
        self._link = EngineLink(
            self._connect, load, lambda: self._wake(), previous=previous
        )
        self._link.start()

    def _send(self, commands: Sequence[Command]) -> None:
        for command in commands:
            if self._link is not None:
                self._link.send(command)
