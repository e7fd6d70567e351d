# SPDX-License-Identifier: Apache-2.0
"""All messages of a conversation as a tree, and the path through it that is shown.

Asking again adds an answer beside the old one, editing adds a message beside the old
one; nothing is ever removed. The path from the first message to ``leaf`` is what a
reader sees and what the model is told.
"""

from __future__ import annotations

from splashpy.chat.entries import Message, Reply, UserMessage


class Tree:
    """Messages, each the child of the one it follows.

    Attributes:
        messages: in the order in which they were said.
        leaf: the end of the path that is shown; None at the beginning.
    """

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.leaf: Message | None = None

    def add(self, message: Message, parent: Message | None) -> None:
        """Put a message after ``parent`` and make it the end of the path."""
        message.parent = parent
        self.messages.append(message)
        self.leaf = message
        self._number(message)

    def path(self) -> list[Message]:
        """The messages from the first one to the leaf."""
        path: list[Message] = []
        message = self.leaf
        while message is not None:
            path.append(message)
            message = message.parent
        return path[::-1]

    def siblings(self, message: Message) -> list[Message]:
        """The messages that answer, or ask, at the same place; itself included."""
        kind = type(message)
        return [
            other
            for other in self.messages
            if other.parent is message.parent and type(other) is kind
        ]

    def switch(self, message: Message, step: int) -> bool:
        """Show a sibling, and below it what was said last.

        Args:
            message: on the path.
            step: siblings to go on, negative backwards.

        Returns:
            Whether there is such a sibling.
        """
        siblings = self.siblings(message)
        wanted = siblings.index(message) + step
        if step == 0 or not 0 <= wanted < len(siblings):
            return False
        self.leaf = self._latest_below(siblings[wanted])
        return True

    def _latest_below(self, message: Message) -> Message:
        """Follow the newest child to the end."""
        newest = {id(m.parent): m for m in self.messages if m.parent is not None}
        while id(message) in newest:
            message = newest[id(message)]
        return message

    def _number(self, message: Message) -> None:
        siblings = self.siblings(message)
        for number, sibling in enumerate(siblings, start=1):
            sibling.place = (number, len(siblings))
            sibling.revision += 1


def mark_history(path: list[Message]) -> None:
    """Say of each message of a path whether the next prompt contains it.

    An answer that failed is no part of it, nor is the message it was for, nor what a
    person left out.
    """
    following: Message | None = None
    for message in reversed(path):
        if isinstance(message, Reply):
            kept = message.state != "failed"
        else:
            kept = not (isinstance(following, Reply) and following.state == "failed")
        kept = kept and not message.left_out
        if message.in_history != kept:
            message.in_history = kept
            message.revision += 1
        following = message


def question_of(reply: Reply) -> UserMessage | None:
    """The message an answer is for."""
    return reply.parent if isinstance(reply.parent, UserMessage) else None
