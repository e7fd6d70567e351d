# SPDX-License-Identifier: Apache-2.0
"""What a person asks of the engine in one conversation, as plain state and commands.

Every method changes the state and returns the commands to send. What the engine says to
them is taken in by ``session.py``, which builds on this.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from splashpy.chat.engine_view import EngineView
from splashpy.chat.entries import (
    Attachment,
    Message,
    Problem,
    Reply,
    UserMessage,
    forget,
)
from splashpy.chat.history import content_of, told
from splashpy.chat.race import Race
from splashpy.chat.settings import ChatSettings
from splashpy.chat.shown import ShownPath
from splashpy.chat.tree import question_of
from splashpy.protocol import Cancel, Command, Count, Generate, Load, Piece, Unload

SUMMARIZE = (
    "Summarize our conversation so far, with every fact, decision and open question "
    "that is needed to go on from the summary alone."
)
"""What ``compact`` asks."""

GATHER_MS = 250
"""Cycles are told together so often where the interface shares the processor with the
engine: waking it for each would cost as much as drawing, which is seldom there."""


class Asking(ShownPath):
    """The person's side of a conversation.

    Args:
        load: the model that answers.
        settings: sampling, limits and system prompt of every request.
        time_of_day: the present, as shown beside a message.

    Attributes:
        reply: the answer that is running, also the last Reply of ``entries``.
        queued: the one message that waits for the engine.
        queued_files: what is sent with it.
        returned: a message that failed, to be put back into the editor.
        too_long: the answer that failed because the context is too small, once.
    """

    def __init__(
        self, load: Load, settings: ChatSettings, *, time_of_day: Callable[[], str]
    ):
        super().__init__()
        self.load = load
        self.settings = settings
        self.engine = EngineView()
        self.reply: Reply | None = None
        self.queued: str | None = None
        self.queued_files: tuple[Attachment, ...] = ()
        self.returned: UserMessage | None = None
        self.too_long: Problem | None = None
        self._compacting: list[Message] = []
        self._counting = ""
        self._race: Race | None = None
        self._time_of_day = time_of_day
        self._requests = 0

    @property
    def model_name(self) -> str:
        """What people call the model."""
        ready = self.engine.ready
        return self.load.name or (ready.model if ready else "") or self.load.model

    @property
    def idle(self) -> bool:
        """A message would be answered at once."""
        return self.engine.phase == "ready" and self.reply is None

    @property
    def accepts(self) -> bool:
        """A message would be answered or queued."""
        return self.idle or self.queued is None

    @property
    def hindrance(self) -> str:
        """Why nothing can be asked now, for a person; empty when it can."""
        if self.reply is not None:
            return "wait until the answer has ended"
        match self.engine.phase:
            case "ready":
                return ""
            case "unloaded":
                return "the model is unloaded; /reload loads it"
            case "dead" | "failed" | "stuck":
                return "the engine does not answer; ctrl+r starts it again"
            case "starting" | "loading":
                return "wait until the model is loaded"

    @property
    def busy(self) -> bool:
        """What is shown changes with time, whatever a person does."""
        return self.reply is not None or not self.engine.settled

    @property
    def question(self) -> str:
        """The message the running answer is for; empty when none runs."""
        message = question_of(self.reply) if self.reply is not None else None
        return message.text if message is not None else ""

    def submit(
        self, text: str, now: float, files: Sequence[Attachment] = ()
    ) -> list[Command]:
        """Send a message, or let it wait until it can be sent.

        Args:
            text: of the message.
            now: seconds of the clock of ``sent_at``.
            files: to put before the text.

        Raises:
            ValueError: one is already waiting; see ``accepts``.
        """
        if not self.idle:
            if self.queued is not None:
                raise ValueError("one message is already waiting")
            self.queued, self.queued_files = text, tuple(files)
            return self._load_again()
        message = UserMessage(text, self._time_of_day(), tuple(files))
        self.add(message, self.tree.leaf)
        return [*self._generate(now)]

    def _load_again(self) -> list[Command]:
        if self.engine.phase != "unloaded":
            return []
        self.engine.phase, self.engine.progress = "loading", None
        return [self.load]

    def edit(
        self,
        message: UserMessage,
        text: str,
        now: float,
        files: Sequence[Attachment] = (),
    ) -> list[Command]:
        """Send a message again in other words; the old one stays beside it."""
        if not self.idle or message not in self.tree.messages:
            return []
        self.tree.leaf = message.parent
        self.show_path()
        return self.submit(text, now, files)

    def stop(self, now: float) -> list[Command]:
        """Ask the engine to stop the answer; what is written stays."""
        if self.reply is None or self.reply.stopping_since is not None:
            return []
        self.reply.stopping_since = now
        return [Cancel(id=self.reply.request_id)]

    def drop_queued(self) -> UserMessage | None:
        """Take the waiting message back."""
        text, self.queued = self.queued, None
        files, self.queued_files = self.queued_files, ()
        return None if text is None else UserMessage(text, "", files)

    def take_returned(self) -> UserMessage | None:
        """A message for the editor, once."""
        message, self.returned = self.returned, None
        return message

    @property
    def can_retry(self) -> bool:
        """The last answer can be asked for again."""
        return self.idle and self.last_question() is not None

    def retry(self, now: float, reply: Reply | None = None) -> list[Command]:
        """Ask again for an answer; the old one stays beside the new one.

        Args:
            now: seconds of the clock of ``sent_at``.
            reply: on the path; None: the last one.
        """
        question = self.last_question() if reply is None else question_of(reply)
        if question not in self.tree.messages or not self.idle:
            return []
        self.tree.leaf = question
        self.show_path()
        return [*self._generate(now)]

    def race(self, now: float, text: str = "") -> list[Command]:
        """Answer a message with drafts, then without, and compare.

        Args:
            now: seconds of the clock of ``sent_at``.
            text: a new message; empty: the last one.
        """
        if not self.idle:
            return []
        if text:
            self.add(UserMessage(text, self._time_of_day()), self.tree.leaf)
            leaf = self.tree.leaf
            question = leaf if isinstance(leaf, UserMessage) else None
        else:
            question = self.last_question()
        if question is None:
            return []
        self._race = Race(question)
        return self._next_lap(self._race, now)

    def _next_lap(self, race: Race, now: float) -> list[Command]:
        self.tree.leaf = race.question
        self.show_path()
        (command,) = self._generate(now)
        return [race.lap(command)]

    @property
    def unfinished(self) -> Reply | None:
        """The last answer, where it broke off and can be gone on with."""
        last = self.tree.leaf
        if not self.idle or not isinstance(last, Reply) or not last.text:
            return None
        cut = last.done is not None and last.done.reason in ("length", "cancelled")
        return last if last.state == "partial" or cut else None

    def resume(self, now: float) -> list[Command]:
        """Write on where the last answer broke off, beside what it has now."""
        cut = self.unfinished
        if cut is None:
            return []
        self.tree.leaf = cut.parent
        self.show_path()
        (command,) = self._generate(now)
        assert self.reply is not None
        self.reply.text, self.reply.reasoning = cut.text, cut.reasoning
        self.reply.thought_seconds = cut.thought_seconds
        # What it was made of, as long as that is remembered.
        self.reply.pieces = list(cut.pieces) or [Piece(cut.text, "t", "c")]
        begun = {"role": "assistant", "content": cut.text}
        messages = (*command.messages, begun)
        return [replace(command, messages=messages, continue_final=True)]

    def unload(self) -> list[Command]:
        """Free the model; the next message loads it again."""
        if not self.idle:
            return []
        self.engine.phase = "unloaded"
        return [Unload()]

    def branch(self, reply: Reply) -> bool:
        """Go on from an earlier answer; what followed it stays in the tree."""
        if not self.idle or reply not in self.tree.messages:
            return False
        self.tree.leaf = reply
        self.show_path()
        return True

    def switch(self, message: Message, step: int) -> bool:
        """Show another answer, or another wording, at the place of a message.

        Returns:
            Whether there is one; never while an answer runs.
        """
        if self.reply is not None or not self.tree.switch(message, step):
            return False
        self.show_path()
        return True

    def history(self) -> tuple[dict[str, Any], ...]:
        """The conversation as the engine gets it."""
        return self.messages(self.settings.system)

    # --- how full the context is --------------------------------------------------

    def count(self, draft: str, files: Sequence[Attachment] = ()) -> list[Command]:
        """Ask how many tokens the next prompt would have.

        Args:
            draft: what stands in the editor.
            files: what would be sent with it.
        """
        if not self.idle:
            return []
        messages = list(self.history())
        if draft.strip() or files:
            written = content_of(UserMessage(draft, "", tuple(files)))
            messages.append({"role": "user", "content": written})
        if not messages or messages[-1]["role"] != "user":
            self.counted = None  # the last answer told how much there is
            return []
        self._requests += 1
        self._counting = f"count-{self._requests}"
        return [Count(id=self._counting, messages=tuple(messages))]

    def compact(self, turns: int, now: float) -> list[Command]:
        """Have the model sum up the oldest turns, which are left out then.

        Args:
            turns: how many, at least one.
            now: seconds of the clock of ``sent_at``.
        """
        chosen = [message for turn in self.turns[:turns] for message in turn]
        if not self.idle or not chosen:
            return []
        self.add(UserMessage(SUMMARIZE, self._time_of_day()), self.tree.leaf)
        (command,) = self._generate(now)
        self._compacting = chosen
        asked = {"role": "user", "content": SUMMARIZE}
        kept = told(chosen, self.settings.system)
        return [replace(command, messages=(*kept, asked))]

    def _generate(self, now: float) -> list[Generate]:
        self._requests += 1
        command = Generate(
            id=f"chat-{self._requests}",
            messages=self.history(),
            sampling=self.settings.sampling,
            max_tokens=self.settings.max_tokens,
            effort=self.settings.effort,
            draft=self.settings.draft,
            gather_ms=GATHER_MS if self.engine.shared else 0,
        )
        forget([m for m in self.tree.messages if isinstance(m, Reply)])
        self.reply = Reply(self.model_name, self._time_of_day(), command.id, now)
        self.reply.meter.late = command.gather_ms / 1000
        self.add(self.reply, self.tree.leaf)
        return [command]

    def _send_queued(self, now: float) -> list[Command]:
        if self.queued is None or not self.idle:
            return []
        text, self.queued = self.queued, None
        files, self.queued_files = self.queued_files, ()
        return self.submit(text, now, files)
