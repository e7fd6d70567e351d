# SPDX-License-Identifier: Apache-2.0
"""Finds tool calls in the text of an answer.

What is not part of a call is passed on unchanged, with two exceptions that keep a turn
that consists of calls free of empty text: white space directly before a call, and white
space after the last one. A region that turns out to hold no call is given back as text,
markers included, so nothing a model wrote is lost.
"""

from __future__ import annotations

from splashpy.dialogue.tools.events import Markup, Prose, ToolEvent, joined
from splashpy.dialogue.tools.formats import (
    ToolFormat,
    json_between,
    qwen_bare,
    qwen_tags,
)
from splashpy.dialogue.tools.reader import CallReader, Progress
from splashpy.dialogue.tools.schema import ToolSchemas
from splashpy.dialogue.tools.writer import CallWriter

_SPACE = " \t\r\n"
_FENCES = ("```", "~~~")
_LONGEST_NAME = 128


class ToolCallParser:
    """Reads the calls of one answer.

    Args:
        form: how the model writes calls.
        schemas: of the offered tools.
        by_token: the opening marker is a token of its own and is given to ``marker``;
            the same characters in ``feed`` are ordinary text.

    Attributes:
        calls: calls that are complete.
    """

    def __init__(
        self, form: ToolFormat, schemas: ToolSchemas, *, by_token: bool = False
    ) -> None:
        self._form = form
        self._schemas = schemas
        self._writer = CallWriter(schemas)
        self._opener = "" if by_token else form.region[0]
        self._reader: CallReader | None = None
        self._undecided = False  # the format of the region is not known yet
        self._raw = ""  # the region so far
        self._good = 0  # characters of it up to the end of its last whole call
        self._calls_before = self._calls_seen = 0
        self._reported = 0  # characters of it that were passed on as markup
        self._before = ""  # white space before the region
        self._held = ""  # may begin a marker
        self._space = ""  # may be dropped before a call
        self._line = ""  # the beginning of the line being written
        self._fenced = False
        self._after_call = False
        self._events: list[ToolEvent] = []

    @property
    def calls(self) -> int:
        """Calls that are complete."""
        return self._writer.finished

    @property
    def inside(self) -> bool:
        """Whether the next text belongs to a region of calls."""
        return self._reader is not None or self._undecided

    @property
    def holding(self) -> bool:
        """Whether text is held back that may not be part of a call."""
        return bool(self._held or self._space)

    def feed(self, text: str) -> list[ToolEvent]:
        """Take more text."""
        for character in text:
            self._push(character)
        return self._taken()

    def marker(self, text: str) -> list[ToolEvent]:
        """Take the text of a control token of the format."""
        if self.inside or text != self._form.region[0]:
            for character in text:
                self._push(character)
        else:
            self._say(self._held)
            self._held = ""
            self._open(text)
        return self._taken()

    def finish(self, *, cut: bool) -> list[ToolEvent]:
        """The answer ended; ``cut``: not by the model's own will."""
        self._say(self._held)
        self._held = ""
        if self.inside:
            reader = self._reader
            broken = reader is None or (cut and not reader.settled)
            if reader is not None and not broken:
                reader.finish()
            self._events += self._writer.take()
            self._close_region(broken=broken)
        if self._space and not self._after_call:
            self._events.append(Prose(self._space))
        self._space = ""
        return self._taken()

    def _taken(self) -> list[ToolEvent]:
        self._report()
        taken, self._events = self._events, []
        return joined(taken)

    # --- outside of a call --------------------------------------------------------

    def _push(self, character: str) -> None:
        if self._undecided:
            self._raw += character
            self._decide(character)
        elif self._reader is not None:
            self._raw += character
            self._read(character)
        else:
            self._look(character)

    def _look(self, character: str) -> None:
        self._held += character
        while self._held:
            if self._held == self._opener:
                self._held = ""
                return self._open(self._opener)
            if self._opener.startswith(self._held) or self._may_be_bare(self._held):
                return None
            if self._is_bare(self._held):
                text, self._held = self._held, ""
                return self._open_bare(text)
            self._say(self._held[0])
            self._held = self._held[1:]
        return None

    def _may_be_bare(self, text: str) -> bool:
        """Whether this may still become a call without its opening marker."""
        bare = self._form.bare
        if not bare or self._fenced or self._line.strip():
            return False
        if bare.startswith(text):
            return True
        name = text.removeprefix(bare)
        return (
            text.startswith(bare)
            and len(name) <= _LONGEST_NAME
            and not any(character in f"{_SPACE}<>=" for character in name)
        )

    def _is_bare(self, text: str) -> bool:
        bare = self._form.bare
        if not bare or self._fenced or self._line.strip() or not text.endswith(">"):
            return False
        return text.startswith(bare) and text[len(bare) : -1] in self._schemas

    def _say(self, text: str) -> None:
        """Text that belongs to no call."""
        for character in text:
            if character in _SPACE:
                self._space += character
            else:
                self._events.append(Prose(self._space + character))
                self._space, self._after_call = "", False
            self._note_line(character)

    def _note_line(self, character: str) -> None:
        if character != "\n":
            self._line += character if len(self._line.lstrip()) < 3 else ""
            return
        if self._line.lstrip().startswith(_FENCES):
            self._fenced = not self._fenced
        self._line = ""

    # --- a region of calls --------------------------------------------------------

    def _open(self, opener: str, *, reported: int = 0) -> None:
        form = self._form
        self._begin_region(opener, reported)
        self._undecided = form.json_too or form.tags_too
        if not self._undecided:
            self._reader = form.reader(self._writer)
        if form.keeps_opener:
            self._replay(opener)

    def _begin_region(self, opener: str, reported: int) -> None:
        self._before, self._space = self._space, ""
        self._raw, self._reported = opener, reported
        self._good = 0
        self._calls_before = self._calls_seen = self._writer.finished

    def _open_bare(self, text: str) -> None:
        self._begin_region(text, 0)
        self._reader = qwen_bare(self._writer)
        self._replay(text)

    def _decide(self, character: str) -> None:
        """Choose a reader by the first visible character of the region."""
        if character in _SPACE:
            return
        form = self._form
        self._undecided = False
        if form.json_too and character in "{[":
            self._reader = json_between(form.region)(self._writer)
        elif form.tags_too and character == "<":
            self._reader = qwen_tags(self._writer)
        else:
            self._reader = form.reader(self._writer)
        self._replay(self._raw.removeprefix(form.region[0]))

    def _replay(self, text: str) -> None:
        for character in text:
            self._read(character)

    def _read(self, character: str) -> None:
        reader = self._reader
        if reader is None:
            return
        progress = reader.push(character)
        calls = self._writer.finished
        self._events += self._writer.take()
        if calls > self._calls_seen:
            self._calls_seen, self._good = calls, len(self._raw)
        if progress is Progress.DONE:
            self._close_region()
        elif progress is Progress.REOPENED:
            opener = self._form.region[0]
            self._report()
            self._raw = self._raw.removesuffix(opener)
            self._close_region()
            self._open(opener, reported=len(opener))

    def _report(self) -> None:
        """Pass on what was read of a region since the last time."""
        if self.inside and len(self._raw) > self._reported:
            self._events.append(Markup(self._raw[self._reported :]))
            self._reported = len(self._raw)

    def _close_region(self, *, broken: bool = False) -> None:
        """End a region; give back as text what of it was no whole call."""
        reader = self._reader
        self._report()
        self._reader, self._undecided = None, False
        broken = broken or self._writer.open or reader is None or reader.failed
        self._writer.abandon()
        self._events += self._writer.take()
        called = self._writer.finished > self._calls_before
        self._after_call = called
        if broken or not called:
            self._space = "" if called else self._before
            self._say(self._raw[self._good :])
        elif reader is not None:
            self._say(reader.stray)
