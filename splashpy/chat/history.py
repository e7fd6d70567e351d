# SPDX-License-Identifier: Apache-2.0
"""What the model is told of a conversation: roles, texts, files in fences."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from splashpy.chat.entries import Attachment, Message, Reply, UserMessage


def content_of(message: Message) -> str:
    """What the model is told: the files of a message, then its text."""
    if isinstance(message, Reply):
        return message.text
    return "\n".join([*map(fenced_file, message.attachments), message.text])


def fenced_file(file: Attachment) -> str:
    """A file in a fence no line of it can close, its name before it."""
    longest = 0
    for line in file.text.splitlines():
        mark = line.lstrip()
        longest = max(longest, len(mark) - len(mark.lstrip("`")))
    fence = "`" * max(3, longest + 1)
    end = "" if file.text.endswith("\n") else "\n"
    return f"{file.name}\n{fence}\n{file.text}{end}{fence}\n"


def told(path: Sequence[Message], system: str | None) -> list[dict[str, Any]]:
    """The messages of a path as the engine gets them.

    Messages of one speaker that follow each other, because an answer was stopped
    before its first token, become one: many templates demand that roles alternate.

    Args:
        path: oldest first; what is not ``in_history`` is left out.
        system: the system prompt, if there is one.
    """
    messages: list[dict[str, Any]] = []
    if system:
        messages.append({"role": "system", "content": system})
    for message in path:
        content = content_of(message)
        if not message.in_history or not content:
            continue
        role = "user" if isinstance(message, UserMessage) else "assistant"
        if messages and messages[-1]["role"] == role:
            messages[-1]["content"] += "\n\n" + content
        else:
            messages.append({"role": role, "content": content})
    return messages


def turns(path: Sequence[Message]) -> list[list[Message]]:
    """What is sent of a path, in messages with their answers."""
    found: list[list[Message]] = []
    for message in path:
        if not message.in_history:
            continue
        if isinstance(message, UserMessage) or not found:
            found.append([])
        found[-1].append(message)
    return found
