# SPDX-License-Identifier: Apache-2.0
"""Answers that are several messages, each with a header that says whom it is for.

gpt-oss (Harmony) names a channel, Muse (ATEM) a recipient::

    <|channel|>analysis<|message|>thoughts<|end|>
    <|start|>assistant<|channel|>final<|message|>answer
     to=self<|message|>thoughts<|eom|><|start|>assistant to=user<|message|>answer

The prompt ends where a header begins, so an answer begins in one. Headers are dropped;
that of a tool call in gpt-oss is passed on in the one spelling the parser of calls
reads, whichever the model chose.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from splashpy.dialogue.channels import Run

Begun = Literal["", "text", "reasoning", "call"]
"""What a prompt made an answer begin with; nothing where it ends in a header."""

_BODY = "<|message|>"
_START = "<|start|>"
_BEGINNINGS = ("assistant", "to=", "<|channel|>")


@dataclass(frozen=True, slots=True)
class SectionWords:
    """How one family writes headers.

    Attributes:
        within: control tokens that are part of a header.
        ends: control tokens that end a message.
        reasoning: found in the header of a message nobody else is to read.
        call: found in the header of a tool call; its group is the tool.
        called: how the parser of calls reads that header, with ``{}`` for the tool.
        call_end: how it reads the end of the message.
    """

    within: tuple[str, ...]
    ends: tuple[str, ...]
    reasoning: re.Pattern[str]
    call: re.Pattern[str] | None = None
    called: str = ""
    call_end: str = ""

    @property
    def tokens(self) -> tuple[str, ...]:
        """All control tokens that make up headers."""
        return (_START, _BODY, *self.within, *self.ends)


HARMONY = SectionWords(
    within=("<|channel|>", "<|constrain|>"),
    ends=("<|end|>", "<|call|>", "<|return|>"),
    reasoning=re.compile(r"<\|channel\|>\s*analysis\b"),
    call=re.compile(r"\bto=(functions\.[^\s<>]+)"),
    called=f"<|channel|>commentary to={{}}{_BODY}",
    call_end="<|call|>",
)
MUSE = SectionWords(
    within=(), ends=("<|eom|>", "<|eot|>"), reasoning=re.compile(r"\bto=self\b")
)
_NEEDED = {
    HARMONY: (_START, _BODY, "<|channel|>", "<|end|>"),
    MUSE: (_START, _BODY, "<|eom|>"),
}


@dataclass(frozen=True, slots=True)
class Sections:
    """The headers of one model: their words and the ids of their tokens."""

    words: SectionWords
    ids: Mapping[int, str]


def find_sections(control_id: Callable[[str], int | None]) -> Sections | None:
    """The headers a model writes; None where its answers have none.

    Args:
        control_id: id of a control token by its text.
    """
    for words, needed in _NEEDED.items():
        if all(control_id(text) is not None for text in needed):
            found = {control_id(text): text for text in words.tokens}
            ids = {i: text for i, text in found.items() if i is not None}
            return Sections(words, ids)
    return None


def begun_by(sections: Sections, prompt: str) -> Begun:
    """What the end of a prompt makes the answer begin with, apart from calls."""
    head, body, text = prompt.rpartition(_START)[2].partition(_BODY)
    if not body or any(end in text for end in sections.words.ends):
        return ""
    return "reasoning" if sections.words.reasoning.search(head) else "text"


class SectionSplitter:
    """Splits one answer; does what ``ChannelSplitter`` does for models with tags.

    Args:
        sections: of the model.
        begun: what the answer was made to begin with.
    """

    def __init__(self, sections: Sections, begun: Begun = "") -> None:
        self._words = sections.words
        self._ids = sections.ids
        self._head: str | None = None if begun else ""  # None: in a body
        self._channel: Literal["c", "r"] = "r" if begun == "reasoning" else "c"
        self._call = begun == "call"
        self._plain = not begun  # no header was seen

    @property
    def inside(self) -> bool:
        """Whether the next text is reasoning, as far as is known."""
        return self._head is None and self._channel == "r"

    @property
    def holding(self) -> bool:
        """Whether text is held back."""
        return self._plain and bool(self._head)

    def is_tag(self, token_id: int) -> bool:
        """Whether this token is part of headers, to be given to ``switch``."""
        return token_id in self._ids

    def switch(self, token_id: int) -> list[Run]:
        """Take such a token; returns what it leads to."""
        text, self._plain = self._ids[token_id], False
        if text == _BODY and self._head is not None:
            return self._begin_body(self._head)
        if text in self._words.within and self._head is not None:
            self._head += text
            return []
        if text == _BODY or text == "<|constrain|>":
            return [(text, self._channel)]  # in the middle of a body: text
        runs = self._end_body()
        self._head = text if text in self._words.within else ""
        return runs

    def feed(self, text: str) -> list[Run]:
        """Take text; returns what is certain about it."""
        if self._head is None:
            return [(text, self._channel)] if text else []
        self._head += text
        if _may_be_header(self._head):
            return []
        text, self._head = self._head, None  # an answer without a header
        self._channel = "c"
        return [(text, "c")]

    def interrupt(self) -> list[Run]:
        """Something else than text comes now; nothing is held back for it."""
        return []

    def flush(self) -> list[Run]:
        """What was held back; of a header that did not end, nothing."""
        text = self._head if self._plain else ""
        self._head = "" if self._head is not None else None
        return [(text, "c")] if text else []

    def _begin_body(self, head: str) -> list[Run]:
        words, self._head = self._words, None
        called = words.call.search(head) if words.call else None
        self._call = called is not None
        thinks = words.reasoning.search(head) and not called
        self._channel = "r" if thinks else "c"
        return [(words.called.format(called[1]), "c")] if called else []

    def _end_body(self) -> list[Run]:
        ended, self._call = self._call, False
        return [(self._words.call_end, "c")] if ended else []


def _may_be_header(text: str) -> bool:
    start = text.lstrip()
    return any(start.startswith(w) or w.startswith(start) for w in _BEGINNINGS)
