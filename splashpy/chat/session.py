# SPDX-License-Identifier: Apache-2.0
"""One conversation as plain state: what was said, what runs, what waits.

No widget, no thread, no clock of its own. A frontend hands in what a person did and
what the engine said; a session changes itself and returns the commands to send.
Whatever is shown is a function of this state, so it can be drawn again at any time.

Texts are kept as they came. Whoever draws them sanitizes them.
"""

from __future__ import annotations

from splashpy.chat.asking import Asking
from splashpy.chat.engine_view import EngineView
from splashpy.chat.entries import Notice, Problem, Reply
from splashpy.chat.tree import Tree, mark_history, question_of
from splashpy.errors import (
    ContextLengthError,
    EngineDiedError,
    EngineStuckError,
    SplashError,
)
from splashpy.protocol import (
    Command,
    Counted,
    Done,
    Event,
    Failure,
    Ready,
)


class Session(Asking):
    """A conversation with one engine at a time: what it says, and what follows."""

    # --- another conversation, another engine -------------------------------------

    def leave(self) -> None:
        """Nobody waits for the running answer any more; what it wrote stays."""
        self._compacting = []
        self._race = None
        if self.reply is not None:
            self.reply.state = "partial"
            self.reply.revision += 1
        self.reply = None

    def open(self, tree: Tree) -> list[Command]:
        """Show another conversation; an answer that still runs is stopped."""
        commands = self.new_conversation(0.0)
        self.tree = tree
        self.show_path()
        return commands

    def new_conversation(self, now: float) -> list[Command]:
        """Forget what was said; an answer that still runs is stopped.

        A message that waited goes back to the editor.
        """
        commands = self.stop(now)
        self.leave()
        self.returned = self.drop_queued()
        self.tree = Tree()
        self.show_path()
        return commands

    def restart(self) -> None:
        """A new engine is about to be started in place of the present one."""
        self._end_reply(None)
        self.resolve_notices()
        self.engine = EngineView()

    # --- what the engine says -----------------------------------------------------

    def apply(self, event: Event, now: float) -> list[Command]:
        """Take an event in.

        Args:
            event: what the engine said.
            now: when it came, in seconds of the clock of ``sent_at``.

        Returns:
            Commands the event makes necessary: a queued message is sent.
        """
        if self.engine.recover():
            self.resolve_notices()
        if self.engine.hear(event):
            if not isinstance(event, Ready):
                return []
            self.resolve_notices()
            return self._send_queued(now)
        match event:
            case Counted() if event.id == self._counting:
                self.counted = event.tokens
            case Failure() if not event.id:
                self._engine_failed(event)
            case _ if self.reply and getattr(event, "id", "") == self.reply.request_id:
                return self._apply_to(self.reply, event, now)
            case _:
                pass  # of a request nobody waits for, or of no interest here
        return []

    def lost(self, error: SplashError) -> None:
        """The engine cannot be reached: it died, is stuck, or never started."""
        if isinstance(error, EngineStuckError):
            if self.engine.fall_silent():
                self.entries.append(Notice(Problem.of(error)))
            return
        self.engine.phase = "dead" if isinstance(error, EngineDiedError) else "failed"
        self.resolve_notices()
        self._end_reply(Problem.of(error))
        self.entries.append(Notice(Problem.of(error)))

    def _apply_to(self, reply: Reply, event: Event, now: float) -> list[Command]:
        reply.take(event, now)
        match event:
            case Done():
                self.context_used = event.usage.prompt + event.usage.completion
                self.counted = None
                self.reply = None
                self._finish_compacting(event)
                return self._lap_done(reply, event, now) or self._send_queued(now)
            case Failure():
                self._fail(reply, Problem.of(event))
                return self._send_queued(now)
            case _:
                return []

    def _lap_done(self, reply: Reply, done: Done, now: float) -> list[Command]:
        race, self._race = self._race, None
        if race is None or done.reason == "cancelled":
            return []
        race.laps.append(reply)
        if len(race.laps) == 1:
            self._race = race
            return self._next_lap(race, now)
        self.entries.append(race.notice())
        return []

    def _fail(self, reply: Reply, problem: Problem) -> None:
        """End an exchange that failed; it is shown, but no part of the history."""
        reply.state = "failed"
        reply.problem = problem
        reply.revision += 1
        mark_history(self.tree.path())
        question = question_of(reply)
        if question is not None and not self._compacting:
            self.returned = question
        if reply.problem.code == ContextLengthError.code:
            self.too_long = reply.problem
        self._compacting = []
        self._race = None
        self.reply = None

    def _finish_compacting(self, done: Done) -> None:
        chosen, self._compacting = self._compacting, []
        if chosen and done.reason == "stop":
            self.leave_out(chosen)

    def _engine_failed(self, failure: Failure) -> None:
        problem = Problem.of(failure)
        if failure.fatal or self.engine.phase in ("starting", "loading"):
            self.engine.phase = "failed"
            self._end_reply(problem)
        needs_restart = self.engine.phase == "failed"
        self.entries.append(Notice(problem, needs_restart=needs_restart))

    def _end_reply(self, problem: Problem | None) -> None:
        """The engine of the running answer is gone: keep what it wrote."""
        reply = self.reply
        if reply is None:
            return
        if reply.text or reply.reasoning:
            reply.state = "partial"
            reply.revision += 1
            self.reply = None
        else:
            gone = Problem("E-ENGINE-DIED", "the engine was restarted")
            self._fail(reply, problem or gone)
