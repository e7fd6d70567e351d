# SPDX-License-Identifier: Apache-2.0
"""What a transcript consists of: messages, answers and notices about the engine.

Texts are kept as they came; whoever draws them sanitizes them. ``revision`` grows with
every change, so a reader sees at a glance whether it must draw again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from splashpy.chat.meters import LiveMeter
from splashpy.errors import SplashError
from splashpy.protocol import (
    Cycle,
    Done,
    Event,
    Failure,
    Piece,
    Prefill,
    Queued,
    ToolDelta,
)

REMEMBERED_PIECES = 20_000
"""Pieces whose origin is remembered, over all answers of a conversation."""

TRACED_CYCLES = 4096
"""Cycles of an answer whose outcome is remembered one by one."""

ReplyState = Literal["waiting", "reading", "writing", "complete", "partial", "failed"]


@dataclass(frozen=True, slots=True)
class Problem:
    """What went wrong, for a person."""

    code: str
    message: str
    why: str = ""
    fix: tuple[str, ...] = ()

    @classmethod
    def of(cls, cause: Failure | SplashError) -> Problem:
        """The problem an event or an exception tells of."""
        return cls(cause.code, cause.message, cause.why, tuple(cause.fix))


@dataclass(frozen=True, slots=True)
class Attachment:
    """A text file that is sent with a message.

    Attributes:
        name: as it is shown, and told to the model.
        text: all of it.
    """

    name: str
    text: str


@dataclass(slots=True, eq=False)
class UserMessage:
    """What a person sent.

    Attributes:
        text: as it was written.
        at: time of day for a person.
        attachments: files before the text.
        parent: the message it follows.
        place: (number, count) among the messages edited from one another.
        left_out: a person wants it kept from the model, to save context.
        in_history: the next prompt contains it.
        revision: grows with every change.
    """

    text: str
    at: str
    attachments: tuple[Attachment, ...] = ()
    parent: Message | None = None
    place: tuple[int, int] = (1, 1)
    left_out: bool = False
    in_history: bool = True
    revision: int = 0


@dataclass(slots=True, eq=False)
class Reply:
    """One answer, while it is made and after.

    Attributes:
        name: of the model, as people call it.
        at: time of day for a person.
        request_id: of the ``Generate`` it answers.
        sent_at: seconds of the steady clock the frontend uses.
        text: content so far.
        reasoning: what the model thought before it.
        tool_text: tool calls as the model wrote them; nothing runs them here.
        thinking_from: when the first reasoning came.
        thought_seconds: how long the reasoning took, once content came.
        pieces: where the text came from, as long as it is remembered.
        trace: one byte per verify pass, drafted tokens * 16 + accepted ones, each at
            most 15.
        parent: the message it answers.
        place: (number, count) among the answers to the same message.
        left_out: a person wants it kept from the model, to save context.
        in_history: the next prompt contains it.
        revision: grows with every change.
    """

    name: str
    at: str
    request_id: str
    sent_at: float
    state: ReplyState = "waiting"
    text: str = ""
    reasoning: str = ""
    tool_text: str = ""
    position: int = 0
    prefill: Prefill | None = None
    meter: LiveMeter = field(default_factory=LiveMeter)
    pieces: list[Piece] = field(default_factory=list)
    trace: bytearray = field(default_factory=bytearray)
    thinking_from: float | None = None
    thought_seconds: float | None = None
    stopping_since: float | None = None
    done: Done | None = None
    problem: Problem | None = None
    parent: Message | None = None
    place: tuple[int, int] = (1, 1)
    left_out: bool = False
    in_history: bool = True
    revision: int = 0

    def take(self, event: Event, now: float) -> None:
        """Take in what the engine said about it.

        Args:
            event: of its request.
            now: when it came, in seconds of the clock of ``sent_at``.
        """
        self.revision += 1
        match event:
            case Queued():
                self.position = event.position
            case Prefill():
                self.state = "reading"
                self.prefill = event
            case Cycle():
                self.state = "writing"
                self.meter.add(event, now)
                self.add_pieces(event, now)
            case ToolDelta():
                self.tool_text += event.name and f"\n{event.name} "
                self.tool_text += event.args_delta
            case Done():
                self.state = "complete"
                self.done = event
                self.finish_thinking(now)
            case _:
                pass

    def add_pieces(self, cycle: Cycle, now: float) -> None:
        """Append what a cycle wrote, each piece to its channel."""
        if cycle.i > 0 and len(self.trace) < TRACED_CYCLES:
            self.trace.append(min(cycle.drafted, 15) << 4 | min(cycle.accepted, 15))
        self.pieces += cycle.pieces
        for piece in cycle.pieces:
            if piece.channel == "r":
                self.reasoning += piece.text
                if self.thinking_from is None:
                    self.thinking_from = now
                continue
            self.finish_thinking(now)
            if piece.channel == "x":
                self.tool_text += piece.text
            else:
                self.text += piece.text

    def finish_thinking(self, now: float) -> None:
        """The reasoning is over, if there was any; note how long it took."""
        if self.thinking_from is not None and self.thought_seconds is None:
            self.thought_seconds = now - self.thinking_from


@dataclass(slots=True, eq=False)
class Notice:
    """Something about the engine that is not an answer.

    Attributes:
        remark: nothing is wrong; it only tells.
        needs_restart: the engine cannot go on as it is.
        resolved: it goes on after all, or another took its place.
    """

    problem: Problem
    needs_restart: bool = True
    resolved: bool = False
    remark: bool = False
    revision: int = 0


Message = UserMessage | Reply
"""What is part of the conversation."""

Entry = Message | Notice


def forget(replies: Sequence[Reply]) -> None:
    """Drop what is remembered beyond the bound, the oldest answers first."""
    left = REMEMBERED_PIECES
    for reply in reversed(replies):
        left -= len(reply.pieces)
        if left < 0:
            reply.pieces = []
            reply.revision += 1
