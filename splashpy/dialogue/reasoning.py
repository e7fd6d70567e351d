# SPDX-License-Identifier: Apache-2.0
"""The tags models put around their reasoning.

Models that mark reasoning by the header of a message (gpt-oss, Muse) are described in
``sections.py``. Gemma 4 names a channel after its opening tag; the name is part of it.
Kimi K3's tags are control tokens around a word (``xtml_channels.py``).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

TAG_PAIRS = (
    ("<think>", "</think>"),
    ("<thinking>", "</thinking>"),
    ("<longcat_think>", "</longcat_think>"),
    ("<seed:think>", "</seed:think>"),
    ("[THINK]", "[/THINK]"),
    ("<|START_THINKING|>", "<|END_THINKING|>"),
    ("<|channel>", "<channel|>"),
)
_NAMES = {"<|channel>": "thought"}
TAGS = frozenset(tag for pair in TAG_PAIRS for tag in pair)
XTML = ("<|open|>", "<|close|>", "<|sep|>")
_XTML_END = "<|end_of_msg|>"
_THINK = ("<|open|>think<|sep|>", "<|close|>think<|sep|>")
_RESPONSE = "<|open|>response<|sep|>"


@dataclass(frozen=True, slots=True)
class ReasoningTags:
    """A pair of tags, with their token ids where both are tokens of their own.

    With ids, only these tokens switch channels: the same characters spelled with
    ordinary tokens are text. Without, the characters themselves switch.

    Attributes:
        words_between: ids of the control tokens ``XTML`` where these and a word make
            up a tag.
    """

    open: str
    close: str
    open_id: int | None = None
    close_id: int | None = None
    words_between: tuple[int, ...] = ()

    @property
    def ends(self) -> tuple[int, ...]:
        """Control tokens that end a block, in their order; words may stand between."""
        if self.words_between:
            return self.words_between[1:]
        return () if self.close_id is None else (self.close_id,)

    @property
    def begins(self) -> tuple[int, ...]:
        """The same before an answer that is no call."""
        return self.words_between[::2]

    @property
    def gap(self) -> str:
        """What stands between a closing tag and an answer."""
        return _RESPONSE if self.words_between else "\n\n"

    @property
    def name(self) -> str:
        """What stands right after the opening tag and belongs to it."""
        return _NAMES.get(self.open, "")


def named_tags(source: str) -> ReasoningTags | None:
    """The tags a chat template names, without token ids."""
    for opener, closer in TAG_PAIRS:
        if opener in source or closer in source:
            return ReasoningTags(opener, closer)
    return None


def find_tags(
    source: str, control_id: Callable[[str], int | None]
) -> ReasoningTags | None:
    """The tags a model uses: those its template names, else those it has tokens for.

    Args:
        source: text of the chat template, empty when there is none.
        control_id: id of a control token by its text.
    """
    xtml = tuple(i for text in XTML if (i := control_id(text)) is not None)
    if len(xtml) == len(XTML) and control_id(_XTML_END) is not None:
        return ReasoningTags(*_THINK, words_between=xtml)
    named = named_tags(source)
    pairs = TAG_PAIRS if named is None else ((named.open, named.close),)
    for opener, closer in pairs:
        open_id, close_id = control_id(opener), control_id(closer)
        if open_id is not None and close_id is not None:
            return ReasoningTags(opener, closer, open_id, close_id)
    return named


def split_reasoning(content: str, tags: ReasoningTags) -> tuple[str, str] | None:
    """Reasoning and answer of a message that begins with a closed reasoning block.

    White space around the reasoning and line breaks after the block belong to the
    tags. None when the message does not begin with such a block.
    """
    start = content.lstrip()
    if not start.startswith(tags.open):
        return None
    opened = start.removeprefix(tags.open).removeprefix(tags.name)
    reasoning, closer, answer = opened.partition(tags.close)
    return (reasoning.strip(), answer.lstrip("\n")) if closer else None
