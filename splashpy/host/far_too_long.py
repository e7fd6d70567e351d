# SPDX-License-Identifier: Apache-2.0
"""Prompts that are refused without being read to their end.

Megabytes of text take minutes to render and to cut into tokens, and meanwhile the host
has no time for anybody else. Where the beginning of a prompt fills the context twice,
the rest need not be looked at.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from splashpy.dialogue.tokenizer import Tokenizer
from splashpy.protocol import Generate

_USUAL = 8  # characters; a text of fewer tokens than one for so many is rare
_CONTEXTS = 2  # what a count of pieces may be wrong by is far less
_PIECE = 1 << 16  # characters


def about_tokens(tokenizer: Tokenizer, command: Generate, context: int) -> int:
    """About how many tokens a prompt has that is far too long; 0 for any other.

    Args:
        tokenizer: of the model.
        command: with messages or a text.
        context: tokens of prompt plus answer.
    """
    raw = command.prompt is not None
    texts = [command.prompt or "", *_contents(command.messages)]
    size = sum(map(len, texts))
    if size <= _USUAL * context:
        return 0
    encode = tokenizer.encode if raw else tokenizer.encode_literal
    seen = found = 0
    for text in texts:
        for at in range(0, len(text), _PIECE):
            piece = text[at : at + _PIECE]
            seen, found = seen + len(piece), found + len(encode(piece))
            if found > _CONTEXTS * context:
                return found * size // seen
    return 0


def _contents(messages: tuple[Mapping[str, object], ...]) -> Iterator[str]:
    for message in messages:
        content = message.get("content")
        for part in content if isinstance(content, list | tuple) else [content]:
            text = part.get("text") if isinstance(part, Mapping) else part
            if isinstance(text, str):
                yield text
