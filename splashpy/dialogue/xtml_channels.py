# SPDX-License-Identifier: Apache-2.0
"""Kimi K3's answers: channels in tags that are control tokens around a word.

::

    thoughts<|close|>think<|sep|><|open|>response<|sep|>answer<|close|>response<|sep|>
    <|open|>tools<|sep|>…<|close|>tools<|sep|><|close|>message<|sep|><|end_of_msg|>

The prompt opens the first channel. Tags of channels are dropped, those of calls are
passed on as text for whoever reads calls.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from splashpy.dialogue.channels import Run
from splashpy.dialogue.reasoning import XTML

OPEN, CLOSE, SEP = XTML
_CHANNELS: Mapping[tuple[str, str], Literal["c", "r"]] = {
    (OPEN, "think"): "r",
    (CLOSE, "think"): "c",
    (OPEN, "response"): "c",
    (CLOSE, "response"): "c",
    (CLOSE, "message"): "c",
}
_LONGEST_TAG = 320


class XtmlSplitter:
    """Splits one answer; does what ``ChannelSplitter`` does for models with tags.

    Args:
        ids: of the control tokens ``XTML``.
        inside: the prompt opened the channel of thoughts.
    """

    def __init__(self, ids: Sequence[int], *, inside: bool = False) -> None:
        self._ids = dict(zip(ids, XTML, strict=True))
        self._channel: Literal["c", "r"] = "r" if inside else "c"
        self._tag: tuple[str, str] | None = None  # its marker and its words so far
        self._calls = False  # tags belong to calls

    @property
    def inside(self) -> bool:
        """Whether the next text is reasoning, as far as is known."""
        return self._tag is None and self._channel == "r"

    @property
    def holding(self) -> bool:
        """Whether text is held back."""
        return self._tag is not None

    def is_tag(self, token_id: int) -> bool:
        """Whether this token is part of tags, to be given to ``switch``."""
        return token_id in self._ids

    def switch(self, token_id: int) -> list[Run]:
        """Take such a token; returns what it leads to."""
        text = self._ids[token_id]
        if text != SEP:
            runs = self._give_back()
            self._tag = (text, "")
            return runs
        if self._tag is None:
            return self._run(text)
        (marker, words), self._tag = self._tag, None
        tag = (marker, words.strip())
        if tag in _CHANNELS and not self._calls:
            self._channel = _CHANNELS[tag]
            return []
        if tag[1] == "tools":
            self._calls, self._channel = marker == OPEN, "c"
        return self._run(marker + words + text)

    def feed(self, text: str) -> list[Run]:
        """Take text; returns what is certain about it."""
        if self._tag is None:
            return self._run(text)
        marker, words = self._tag
        self._tag = (marker, words + text)
        return self._give_back() if len(words) > _LONGEST_TAG else []

    def interrupt(self) -> list[Run]:
        """Something else than text comes now; returns what was held back."""
        return self._give_back()

    def flush(self) -> list[Run]:
        """What was held back; of a channel's tag that did not end, nothing."""
        runs = self._give_back()
        return runs if self._calls else []

    def _give_back(self) -> list[Run]:
        """A tag that did not end is text."""
        text, self._tag = "".join(self._tag or ()), None
        return self._run(text)

    def _run(self, text: str) -> list[Run]:
        return [(text, self._channel)] if text else []
