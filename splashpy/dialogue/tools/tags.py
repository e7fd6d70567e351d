# SPDX-License-Identifier: Apache-2.0
"""Calls written with tags: ``<function=f><parameter=k>value</parameter></function>``.

Several families write this with other words. A value is plain text up to its closing
tag; where a model forgot that one, the next tag that can only stand outside a value
ends it. A value that has to be JSON may hold tags in its strings.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from splashpy.dialogue.tools.reader import OpenString, Progress, Tail
from splashpy.dialogue.tools.writer import CallWriter

_LONGEST_TAG = 320
_CDATA = ("<![CDATA[", "]]>")


@dataclass(frozen=True, slots=True)
class TagWords:
    """The tags of one family.

    Attributes:
        call: pattern of the tag that begins a call; its group is the name.
        argument: pattern of the tag that begins an argument; its group is the key.
        argument_start: how every such tag begins, a malformed one too.
        call_close: ends a call.
        argument_close: ends an argument.
        region: opening and closing marker around the calls; empty where there are none.
        trims: a value stands between two line breaks that are not part of it.
        unwraps: a value may be wrapped in CDATA.
    """

    call: re.Pattern[str]
    argument: re.Pattern[str]
    argument_start: str
    call_close: str
    argument_close: str
    region: tuple[str, str] = ("", "")
    trims: bool = False
    unwraps: bool = False

    @property
    def value_ends(self) -> tuple[str, ...]:
        """What ends a value; a break before the next argument tells it from text."""
        always = [self.argument_close, self.call_close, *filter(None, self.region)]
        broken = [f"\n{end}" for end in always] if self.trims else []
        return (*always, *broken, f"\n{self.argument_start}")


class TagReader:
    """Reads calls written with tags."""

    def __init__(self, words: TagWords, writer: CallWriter) -> None:
        self.failed = False
        self.stray = ""
        self._words = words
        self._writer = writer
        self._tag = ""
        self._value: _Value | None = None

    @property
    def settled(self) -> bool:
        """See :class:`~splashpy.dialogue.tools.reader.CallReader`."""
        return not self._writer.open

    def push(self, character: str) -> Progress:
        """See :class:`~splashpy.dialogue.tools.reader.CallReader`."""
        if self._value is not None:
            end = self._value.push(character)
            return self._after_value(end) if end else Progress.READING
        if self._tag or character == "<":
            return self._extend_tag(character)
        self._note_stray(character)
        return Progress.READING

    def finish(self) -> None:
        """See :class:`~splashpy.dialogue.tools.reader.CallReader`."""
        if self._value is not None:
            self._value.finish()
            self._value = None
        self._note_stray(self._tag)
        if self._writer.open:
            self._writer.end()

    def _note_stray(self, text: str) -> None:
        self.stray += text if text.strip() else ""

    def _extend_tag(self, character: str) -> Progress:
        words = self._words
        if character == "<" and self._tag:
            self._note_stray(self._tag)
            self._tag = ""
        self._tag += character
        malformed = character == "\n" or len(self._tag) > _LONGEST_TAG
        if self._tag.startswith(words.argument_start) and malformed:
            return self._skip_argument()
        if character == ">" or malformed:
            return self._take_tag()
        return Progress.READING

    def _take_tag(self) -> Progress:
        tag, self._tag = self._tag, ""
        words, writer = self._words, self._writer
        opener, closer = words.region
        if tag == closer:
            if writer.open:
                writer.end()
            return Progress.DONE
        if tag == opener:
            if writer.open:
                writer.end()
            return Progress.REOPENED
        if tag == words.call_close and writer.open:
            writer.end()
            return Progress.READING if closer else Progress.DONE
        if call := words.call.fullmatch(tag):
            writer.start(call[1])
        elif tag.startswith(words.argument_start):
            self._begin_argument(words.argument.fullmatch(tag))
        elif tag != words.argument_close:
            self._note_stray(tag)
            self.failed = self.failed or not writer.open
        return Progress.READING

    def _begin_argument(self, found: re.Match[str] | None) -> None:
        if not self._writer.open:
            self.failed = True
            return
        key = found[1] if found else ""
        self._value = _Value(self._words, self._writer, key)

    def _skip_argument(self) -> Progress:
        """A tag of an argument that names none: it goes with its value."""
        self._tag = ""
        self._begin_argument(None)
        return Progress.READING

    def _after_value(self, end: str) -> Progress:
        self._value = None
        end = end.removeprefix("\n")
        if end == self._words.argument_start:
            self._tag = end
            return Progress.READING
        self._tag = end
        return self._take_tag()


class _Value:
    """One argument on its way; without a key it is dropped."""

    def __init__(self, words: TagWords, writer: CallWriter, key: str) -> None:
        self._words, self._writer = words, writer
        self._key = "" if writer.knows(key) else key
        self._tail = Tail(words.value_ends)
        self._text = ""
        self._streams = writer.streams(key) and not words.unwraps
        self._begun = not words.trims
        self._string = OpenString() if writer.takes_json(key) else None
        if self._key and self._streams:
            writer.key(key)
            writer.raw('"')

    def push(self, character: str) -> str:
        """Take a character; returns what ended the value, if it did."""
        passed, end = self._tail.push(character)
        if end and not self._begun and end.startswith("\n"):
            passed, end = passed + "\n", end[1:]  # the leading break, and nothing more
        if self._string is not None:
            self._string.take(passed + end)
            if self._string.inside:
                passed, end = passed + end, ""
        self._add(passed)
        if end:
            self._close()
        return end

    def finish(self) -> None:
        """The text ended inside the value."""
        rest = self._tail.flush()
        self._add("" if self._words.trims and rest == "\n" else rest)
        self._close()

    def _add(self, text: str) -> None:
        if text and not self._begun:
            self._begun = True
            text = text.removeprefix("\n")
        if self._key and self._streams:
            self._writer.piece(text)
        else:
            self._text += text

    def _close(self) -> None:
        if not self._key:
            return
        if self._streams:
            self._writer.raw('"')
        else:
            self._writer.text(self._key, self._unwrapped())

    def _unwrapped(self) -> str:
        opener, closer = _CDATA
        plain = self._text.strip()
        if self._words.unwraps and plain.startswith(opener) and plain.endswith(closer):
            return plain[len(opener) : -len(closer)]
        return self._text
