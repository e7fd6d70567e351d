# SPDX-License-Identifier: Apache-2.0
"""A conversation at rest: what is written to disk, exported and read back.

``save_message`` and ``restore`` translate between this form and the living tree.
Records are plain strings and numbers, so files and databases need no knowledge of the
chat.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Any, Literal

from splashpy.chat.entries import Attachment, Message, Problem, Reply, UserMessage
from splashpy.chat.tree import Tree, mark_history
from splashpy.protocol import Done
from splashpy.wire import event_from_line, to_json

SavedState = Literal["streaming", "complete", "stopped", "partial", "error"]

_TITLE_CHARACTERS = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedMessage:
    """One message of a conversation.

    Attributes:
        id: unique among all messages.
        parent: id of the message it follows; None for a first one.
        role: who said it.
        content: its text as it came.
        created_at: UTC, ISO 8601.
        model: that answered.
        reasoning: what the model thought before the answer.
        tool_text: tool calls as the model wrote them.
        state: ``streaming`` while an engine writes it.
        done: the ``Done`` event of a finished answer.
        error: what went wrong, as the fields of a ``Problem``.
        trace: one byte per cycle, drafted tokens * 16 + accepted ones, both at most 15.
        attachments: files that were sent with it.
        left_out: it is kept from the model.
    """

    id: str
    parent: str | None
    role: Literal["user", "assistant"]
    content: str
    created_at: str
    model: str = ""
    reasoning: str = ""
    tool_text: str = ""
    state: SavedState = "complete"
    done: Mapping[str, Any] | None = None
    error: Mapping[str, Any] | None = None
    trace: bytes = b""
    attachments: tuple[Attachment, ...] = ()
    left_out: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedConversation:
    """A whole conversation.

    Attributes:
        id: unique.
        title: for lists.
        created_at: UTC, ISO 8601.
        model: that answered last.
        system: the system prompt.
        parameters: of every request; see ``ChatSettings.parameters``.
        leaf: id of the message the shown path ends with.
        messages: parents before their children.
    """

    id: str
    title: str
    created_at: str
    model: str = ""
    system: str | None = None
    parameters: Mapping[str, Any] = field(default_factory=dict)
    leaf: str | None = None
    messages: tuple[SavedMessage, ...] = ()

    def path(self) -> list[SavedMessage]:
        """The messages from the first to the leaf."""
        by_id = {message.id: message for message in self.messages}
        path: list[SavedMessage] = []
        at = self.leaf
        while at is not None and at in by_id:
            path.append(by_id[at])
            at = by_id[at].parent
        return path[::-1]


def local_time(at: str) -> str:
    """A moment as the clock on the person's wall showed it; any other text as it is.

    Args:
        at: UTC, ISO 8601.
    """
    try:
        return datetime.fromisoformat(at).astimezone().strftime("%Y-%m-%d %H:%M")
    except ValueError:
        return at


def title_of(text: str) -> str:
    """A title for a conversation that begins with this message."""
    line = next((line.strip() for line in text.splitlines() if line.strip()), "")
    short = line[:_TITLE_CHARACTERS].rstrip()
    return short + "…" if len(line) > _TITLE_CHARACTERS else short


def save_message(
    message: Message, *, name: str, parent: str | None, created_at: str
) -> SavedMessage:
    """The present state of a message, to be kept under an id.

    Args:
        message: of the living tree.
        name: its id.
        parent: id of the message it follows.
        created_at: UTC, ISO 8601.
    """
    if isinstance(message, UserMessage):
        return SavedMessage(
            id=name,
            parent=parent,
            role="user",
            content=message.text,
            created_at=created_at,
            attachments=message.attachments,
            left_out=message.left_out,
        )
    return SavedMessage(
        id=name,
        parent=parent,
        role="assistant",
        content=message.text,
        created_at=created_at,
        model=message.name,
        reasoning=message.reasoning,
        tool_text=message.tool_text,
        state=_state_of(message),
        done=to_json(message.done) if message.done else None,
        error=asdict(message.problem) if message.problem else None,
        trace=bytes(message.trace),
        left_out=message.left_out,
    )


def _state_of(reply: Reply) -> SavedState:
    match reply.state:
        case "waiting" | "reading" | "writing":
            return "streaming"
        case "failed":
            return "error"
        case "partial":
            return "partial"
        case "complete":
            cancelled = reply.done is not None and reply.done.reason == "cancelled"
            return "stopped" if cancelled else "complete"


def restore(
    conversation: SavedConversation, time_of_day: str = ""
) -> tuple[Tree, dict[Message, str]]:
    """The living tree of a saved conversation, and the id of each message.

    Args:
        conversation: as saved; an answer that was being written is partial now.
        time_of_day: shown beside messages that say nothing better.
    """
    tree = Tree()
    by_id: dict[str, Message] = {}
    for saved in conversation.messages:
        parent = by_id.get(saved.parent) if saved.parent else None
        by_id[saved.id] = _revived(saved, time_of_day)
        by_id[saved.id].left_out = saved.left_out
        tree.add(by_id[saved.id], parent)
    if conversation.leaf in by_id:
        tree.leaf = by_id[conversation.leaf]
    mark_history(tree.path())
    return tree, {message: name for name, message in by_id.items()}


def _revived(saved: SavedMessage, time_of_day: str) -> Message:
    at = local_time(saved.created_at) or time_of_day
    if saved.role == "user":
        return UserMessage(saved.content, at, attachments=saved.attachments)
    try:
        done = event_from_line(json.dumps(saved.done)) if saved.done else None
    except ValueError:  # of another version: what was written counts, not its numbers
        done = None
    reply = Reply(saved.model, at, "", 0.0)
    reply.text, reply.reasoning = saved.content, saved.reasoning
    reply.tool_text = saved.tool_text
    reply.done = done if isinstance(done, Done) else None
    reply.problem = problem_of(saved.error) if saved.error else None
    reply.trace += saved.trace
    match saved.state:
        case "complete" | "stopped":
            reply.state = "complete"
        case "error":
            reply.state = "failed"
        case "streaming" | "partial":
            reply.state = "partial"
    return reply


def problem_of(error: Mapping[str, Any]) -> Problem:
    """The problem whose fields were saved."""
    return Problem(
        str(error.get("code", "")),
        str(error.get("message", "")),
        str(error.get("why", "")),
        tuple(map(str, error.get("fix", ()))),
    )
