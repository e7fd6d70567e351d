# SPDX-License-Identifier: Apache-2.0
"""What a reader sees of a conversation: one path through its tree, and notices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from splashpy.chat.entries import Entry, Message, Notice, Reply, UserMessage
from splashpy.chat.history import told, turns
from splashpy.chat.tree import Tree, mark_history, question_of


class ShownPath:
    """The messages from the first one to the leaf, with notices about the engine.

    Attributes:
        tree: everything said, whatever is shown of it.
        entries: the path that is shown, oldest first, with notices about the engine.
        context_used: tokens the conversation took at its last answer.
        counted: tokens of the conversation with what stands in the editor.
    """

    def __init__(self) -> None:
        self.tree = Tree()
        self.entries: list[Entry] = []
        self.context_used: int | None = None
        self.counted: int | None = None

    @property
    def open_notices(self) -> list[Notice]:
        """What keeps the engine from going on."""
        notices = [entry for entry in self.entries if isinstance(entry, Notice)]
        return [item for item in notices if item.needs_restart and not item.resolved]

    @property
    def turns(self) -> list[list[Message]]:
        """What is sent to the model, in messages with their answers."""
        return turns(self.tree.path())

    def leave_out(self, messages: Sequence[Message]) -> None:
        """Keep messages from the model; they stay to be read."""
        for message in messages:
            message.left_out = True
            message.revision += 1
        self.show_path()
        self.counted = None

    def messages(self, system: str | None) -> tuple[dict[str, Any], ...]:
        """The conversation as the engine gets it.

        Args:
            system: the system prompt, if there is one.
        """
        path = [entry for entry in self.entries if not isinstance(entry, Notice)]
        return tuple(told(path, system))

    def add(self, message: Message, parent: Message | None) -> None:
        """Put a message after another and show it."""
        self.tree.add(message, parent)
        self.entries.append(message)

    def show_path(self) -> None:
        """Make the entries agree with the tree."""
        path = self.tree.path()
        mark_history(path)
        self.entries = [*path, *self.open_notices]
        self.counted = None
        answers = [m.done for m in path if isinstance(m, Reply) and m.done]
        last = answers[-1].usage if answers else None
        self.context_used = last.prompt + last.completion if last else None

    def resolve_notices(self) -> None:
        """What the notices told of has passed."""
        for notice in self.open_notices:
            notice.resolved = True
            notice.revision += 1

    def last_question(self) -> UserMessage | None:
        """The message the last answer is for."""
        replies = [entry for entry in self.entries if isinstance(entry, Reply)]
        return question_of(replies[-1]) if replies else None
