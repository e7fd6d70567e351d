# SPDX-License-Identifier: Apache-2.0
"""From a token of a prompt back to the message and the character it came from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from splashpy.dialogue.tokenizer import Tokenizer

_EXCERPT = 24  # characters


@dataclass(frozen=True, slots=True)
class Whereabouts:
    """A place in a conversation.

    Attributes:
        message: its number, from 1; 0 where the place belongs to no message.
        role: of the message.
        character: of its content, from 0.
        now: what stands there.
        was: what stood there in the prompt compared with.
    """

    message: int
    role: str
    character: int
    now: str
    was: str


def locate(
    tokenizer: Tokenizer,
    token_ids: Sequence[int],
    text: str,
    messages: Sequence[Mapping[str, Any]],
    *,
    at: int,
    was: Sequence[int],
) -> Whereabouts:
    """Where a prompt departs from another one.

    Args:
        tokenizer: of both.
        token_ids: the prompt.
        text: the same for a person to read.
        messages: it was made of.
        at: number of tokens both share.
        was: the other prompt's next tokens.
    """
    before, ours, theirs = (
        tokenizer.decode([*token_ids[:at], *rest], skip_special_tokens=False)
        for rest in ((), token_ids[at : at + len(was)], was)
    )
    shared = _shared(ours, theirs) if was else len(before)
    offset = _aligned(ours[:shared], text)
    message, character = _message(text, messages, offset)
    role = str(messages[message - 1].get("role", "")) if message else ""
    return Whereabouts(
        message,
        role,
        character,
        text[offset : offset + _EXCERPT],
        theirs[shared : shared + _EXCERPT],
    )


def _aligned(decoded: str, text: str) -> int:
    """How far into the text its decoded beginning reaches.

    Decoders of some tokenizers drop or add spaces.
    """
    at = 0
    for character in decoded:
        while at < len(text) and text[at] != character and text[at].isspace():
            at += 1
        if at < len(text) and text[at] == character:
            at += 1
        elif not character.isspace():
            break
    return at


def _message(
    text: str, messages: Sequence[Mapping[str, Any]], offset: int
) -> tuple[int, int]:
    """The message a character of the prompt belongs to, and its place in it."""
    cursor, latest = 0, 0
    for number, message in enumerate(messages, start=1):
        content = _content(message).strip()
        start = text.find(content, cursor) if content else -1
        if start < 0:
            continue  # left out by the template, as old reasoning is
        if offset < start:
            return (number, 0) if number == latest + 1 else (latest, 0)
        end = start + len(content)
        if offset <= end:
            return number, offset - start
        cursor, latest = end, number
    return 0, 0


def _content(message: Mapping[str, Any]) -> str:
    content = message.get("content")
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list | tuple) else ()
    return "".join(str(part.get("text", "")) for part in parts if "text" in part)


def _shared(one: str, other: str) -> int:
    pairs = enumerate(zip(one, other, strict=False))
    shorter = min(len(one), len(other))
    return next((index for index, (a, b) in pairs if a != b), shorter)
