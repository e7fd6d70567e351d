# SPDX-License-Identifier: Apache-2.0
"""Reasoning and content told apart in the stream of an answer.

Where the tags are tokens, only those tokens switch, at any place. Where they are
written in ordinary characters, an opening tag counts at the beginning of the answer
only, so that an answer may talk about ``<think>``; the closing tag ends the first
reasoning block.

White space: line breaks directly after a tag belong to it and are dropped, as chat
templates drop them when they write the answer into the next prompt; so is white space
before an opening tag at the beginning. Everything else is passed on as it is.
"""

from __future__ import annotations

from typing import Literal

from splashpy.dialogue.reasoning import ReasoningTags
from splashpy.dialogue.stops import StopMatcher

Run = tuple[str, Literal["c", "r"]]
"""Some text and its channel, as in ``protocol.Piece``."""


class ChannelSplitter:
    """Splits one answer.

    Args:
        tags: the model's reasoning tags; None splits nothing, all is content.
        inside: the prompt opened a reasoning block.
    """

    def __init__(self, tags: ReasoningTags | None, *, inside: bool = False) -> None:
        self._tags = tags
        self._inside = inside and tags is not None
        self._at_start = tags is not None
        self._after_tag = self._inside
        self._by_text = tags is not None and tags.open_id is None
        self._closer = StopMatcher((tags.close,) if tags and self._by_text else ())
        self._held = ""
        self._name = ""  # may come after an opening tag, and is part of it
        self._named = ""  # what of it has come

    @property
    def inside(self) -> bool:
        """Whether the next text is reasoning, as far as is known."""
        return self._inside

    @property
    def holding(self) -> bool:
        """Whether text is held back."""
        return bool(self._held or self._named or self._closer.held)

    def is_tag(self, token_id: int) -> bool:
        """Whether this token is a tag, to be given to ``switch``."""
        tags = self._tags
        return tags is not None and token_id in (tags.open_id, tags.close_id)

    def switch(self, token_id: int) -> list[Run]:
        """Take a tag; returns text held back before it."""
        tags = self._tags
        opens = tags is not None and token_id == tags.open_id
        runs = [] if opens and self._at_start else self.flush()
        self._at_start, self._held = False, ""
        self._inside, self._after_tag = opens, True
        self._name = tags.name if tags is not None and opens else ""
        return runs

    def feed(self, text: str) -> list[Run]:
        """Take text; returns what is certain about it."""
        if self._at_start:
            text = self._begin(self._held + text)
        if self._inside and self._by_text:
            found = self._closer.feed(text)
            runs = self._run(found.text)
            if found.matched is not None:
                runs += self._release_name()
                self._inside, self._after_tag = False, True
                runs += self._run(found.rest)
            return runs
        return self._run(text)

    def interrupt(self) -> list[Run]:
        """Something else than text comes now; returns what was held back."""
        runs = self.flush()
        self._at_start = self._after_tag = False
        return runs

    def flush(self) -> list[Run]:
        """What was held back, in the channel it was held for."""
        runs = self._release_name()
        text, self._held = self._held + self._closer.flush(), ""
        return runs + self._run(text)

    def _begin(self, text: str) -> str:
        """Text after an opening tag at the beginning; holds it until that is clear."""
        start = text.lstrip()
        opener = self._tags.open if self._tags and self._by_text else ""
        if not start or (opener.startswith(start) and start != opener):
            self._held = text
            return ""
        self._held, self._at_start = "", False
        if not opener or not start.startswith(opener):
            return text
        self._inside, self._after_tag = True, True
        self._name = self._tags.name if self._tags else ""
        return start.removeprefix(opener)

    def _release_name(self) -> list[Run]:
        """What began like the name of a channel and was none."""
        text, self._name, self._named = self._named, "", ""
        return self._run(text)

    def _run(self, text: str) -> list[Run]:
        if self._name:
            text, self._named = self._named + text, ""
            if text != self._name and self._name.startswith(text):
                self._named = text
                return []
            text, self._name = text.removeprefix(self._name), ""
        if self._after_tag:
            text = text.lstrip("\n")
            self._after_tag = not text
        return [(text, "r" if self._inside else "c")] if text else []
