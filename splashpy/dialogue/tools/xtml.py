# SPDX-License-Identifier: Apache-2.0
"""Calls written in Kimi K3's markup, whose tags are control tokens around words.

::

    <|open|>call tool="f" index="1"<|sep|>
    <|open|>argument key="k" type="string"<|sep|>value<|close|>argument<|sep|>
    <|close|>call<|sep|>

The arguments may also be one object: ``<|open|>json type="object"<|sep|>{…}``. A value
is plain text up to the tag that closes it, or that of the call where it was forgotten;
tags in the strings of a value that is JSON are text.
"""

from __future__ import annotations

import re

from splashpy.dialogue.tools.json_arguments import JsonArguments
from splashpy.dialogue.tools.json_tokens import BadJsonError, JsonTokens
from splashpy.dialogue.tools.reader import OpenString, Progress, Tail
from splashpy.dialogue.tools.rewriting import compact, quoted
from splashpy.dialogue.tools.writer import CallWriter

OPEN, CLOSE, SEP = "<|open|>", "<|close|>", "<|sep|>"
REGION = (f"{OPEN}tools{SEP}", f"{CLOSE}tools{SEP}")
_ATTRIBUTE = re.compile(r'(\w+)="([^"]*)"')
_AFTER_VALUE = ("argument", "call", "tools")
_LONGEST_TAG = 320


class XtmlReader:
    """Reads the calls of one region."""

    def __init__(self, writer: CallWriter) -> None:
        self.failed = False
        self.stray = ""
        self._writer = writer
        self._markers = Tail((OPEN, CLOSE, SEP))
        self._tag: tuple[str, str] | None = None  # its marker and its words so far
        self._value: _Value | _Object | None = None

    @property
    def settled(self) -> bool:
        """See :class:`~splashpy.dialogue.tools.reader.CallReader`."""
        return not self._writer.open

    def push(self, character: str) -> Progress:
        """See :class:`~splashpy.dialogue.tools.reader.CallReader`."""
        passed, marker = self._markers.push(character)
        self._add(passed)
        if marker in (OPEN, CLOSE):
            self._give_back_tag()
            self._tag = (marker, "")
        elif marker and self._tag is None:
            self._add(marker)
        elif marker:
            return self._take_tag()
        return Progress.READING

    def finish(self) -> None:
        """See :class:`~splashpy.dialogue.tools.reader.CallReader`."""
        self._add(self._markers.flush())
        if self._tag is not None and self._tag[0] == CLOSE and self._value is not None:
            self._tag = None  # the value was about to end
        self._give_back_tag()
        self._end_value()
        if self._writer.open and not self.failed:
            self._writer.end()

    def _add(self, text: str) -> None:
        """Text of a tag, of a value, or between calls."""
        if self._tag is not None:
            marker, words = self._tag
            self._tag = (marker, words + text)
            if len(words) > _LONGEST_TAG:
                self._give_back_tag()
        elif self._value is not None:
            self._value.add(text)
        elif text.strip():
            self.stray += text

    def _give_back_tag(self) -> None:
        """A tag that did not end is text."""
        if self._tag is not None:
            text, self._tag = "".join(self._tag), None
            self._add(text)

    def _take_tag(self) -> Progress:
        assert self._tag is not None
        (marker, words), self._tag = self._tag, None
        name = words.split(maxsplit=1)[0] if words.strip() else ""
        if self._value is not None and not self._ends_value(marker, name):
            self._value.add(marker + words + SEP)
            return Progress.READING
        self._end_value()
        return self._open(name, words) if marker == OPEN else self._close(name, words)

    def _ends_value(self, marker: str, name: str) -> bool:
        if self._value is not None and self._value.in_string:
            return False
        if isinstance(self._value, _Object):
            return marker == CLOSE and name in ("json", "call", "tools")
        return name in _AFTER_VALUE

    def _end_value(self) -> None:
        value, self._value = self._value, None
        if value is not None and not value.end():
            self.failed = True

    def _open(self, name: str, words: str) -> Progress:
        attributes = dict(_ATTRIBUTE.findall(words))
        if name == "tools":
            self._end_call()
            return Progress.REOPENED
        if name == "call":
            self._begin_call(_plain(attributes.get("tool", "")))
        elif name == "argument" and self._writer.open:
            key = _plain(attributes.get("key", ""))
            kind = attributes.get("type", "string")
            self._value = _Value(self._writer, key, kind)
        elif name == "json" and self._writer.open:
            self._value = _Object(self._writer)
        else:
            self._note_unknown(OPEN + words + SEP)
        return Progress.READING

    def _close(self, name: str, words: str) -> Progress:
        if name in ("call", "tools"):
            self._end_call()
        elif name not in ("argument", "json"):
            self._note_unknown(CLOSE + words + SEP)
        return Progress.DONE if name == "tools" else Progress.READING

    def _begin_call(self, name: str) -> None:
        self._end_call()
        if name and not self.failed:
            self._writer.start(name)
        else:
            self.failed = True

    def _end_call(self) -> None:
        if self._writer.open and not self.failed:
            self._writer.end()

    def _note_unknown(self, text: str) -> None:
        self.stray += text
        self.failed = self.failed or not self._writer.open


class _Value:
    """One argument; without a key, or with one that was written, it is dropped."""

    def __init__(self, writer: CallWriter, key: str, kind: str) -> None:
        self._writer = writer
        self._key = "" if writer.knows(key) else key
        self._is_text = kind == "string"
        self._streams = self._is_text and writer.takes_text(key)
        self._text = ""
        self._string = OpenString()
        if self._key and self._streams:
            writer.key(key)
            writer.raw('"')

    @property
    def in_string(self) -> bool:
        """Whether a tag would be text of a string within it."""
        return not self._is_text and self._string.inside

    def add(self, text: str) -> None:
        """Take more of it."""
        self._string.take(text)
        if not self._streams:
            self._text += text
        elif self._key:
            self._writer.piece(text)

    def end(self) -> bool:
        """The value is complete; whether it could be written."""
        key, writer = self._key, self._writer
        if not key:
            return True
        if self._streams:
            writer.raw('"')
            return True
        value = quoted(self._text) if self._is_text else compact(self._text.strip())
        if value is None:
            writer.text(key, self._text)
            return True
        writer.key(key)
        writer.raw(value if value[:1] in "{[" else writer.typed(key, value))
        return True


class _Object:
    """All arguments of a call as one object."""

    def __init__(self, writer: CallWriter) -> None:
        self._tokens = JsonTokens()
        self._arguments = JsonArguments(writer)
        self._string = OpenString()
        self._bad = False

    @property
    def in_string(self) -> bool:
        """Whether a tag would be text of a string within it."""
        return self._string.inside

    def add(self, text: str) -> None:
        """Take more of it."""
        self._string.take(text)
        try:
            for character in text if not self._bad else "":
                if self._arguments.complete and character.isspace():
                    continue
                for token in self._tokens.push(character):
                    self._arguments.take(token)
        except BadJsonError:
            self._bad = True

    def end(self) -> bool:
        """The object should be complete; whether it is."""
        return self._arguments.complete and not self._bad


def _plain(text: str) -> str:
    """The value of an attribute without its escapes."""
    return text.replace("&quot;", '"').replace("&amp;", "&")
