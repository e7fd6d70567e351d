# SPDX-License-Identifier: Apache-2.0
"""Calls written as a name, then pairs of a key and a value in tags (GLM, LongCat)."""

from __future__ import annotations

import re
from dataclasses import dataclass

from splashpy.dialogue.tools.reader import OpenString, Progress, Tail
from splashpy.dialogue.tools.writer import CallWriter

_NAME = re.compile(r"[^\s<>=]{1,128}")


@dataclass(frozen=True, slots=True)
class PairWords:
    """The tags of one family: around keys and around values, opening and closing."""

    key: tuple[str, str]
    value: tuple[str, str]
    region: tuple[str, str]


class PairReader:
    """Reads one call of a region."""

    def __init__(self, words: PairWords, writer: CallWriter) -> None:
        self.failed = False
        self.stray = ""
        self._words = words
        self._writer = writer
        self._outside = Tail((*words.key, *words.value, *words.region))
        self._inside = Tail((words.value[1], *words.region))
        self._text = ""
        self._key = ""
        self._in_value = False
        self._streams = False
        self._string: OpenString | None = None  # of a value that has to be JSON

    @property
    def settled(self) -> bool:
        """See :class:`~splashpy.dialogue.tools.reader.CallReader`."""
        return not self._writer.open and not self._text.strip()

    def push(self, character: str) -> Progress:
        """See :class:`~splashpy.dialogue.tools.reader.CallReader`."""
        tail = self._inside if self._in_value else self._outside
        passed, marker = tail.push(character)
        if self._string is not None:
            self._string.take(passed + marker)
            if self._string.inside:
                passed, marker = passed + marker, ""
        self._add(passed)
        return self._marked(marker) if marker else Progress.READING

    def finish(self) -> None:
        """See :class:`~splashpy.dialogue.tools.reader.CallReader`."""
        self._add((self._inside if self._in_value else self._outside).flush())
        self._end()

    def _add(self, text: str) -> None:
        if self._in_value and self._streams:
            self._writer.piece(text)
        else:
            self._text += text

    def _marked(self, marker: str) -> Progress:
        words = self._words
        if marker == words.key[0]:
            self._name()
        elif marker == words.key[1]:
            self._key = self._taken().strip()
        elif marker == words.value[0]:
            self._begin_value()
        elif marker == words.value[1]:
            self._end_value()
        else:
            self._end()
            again = marker == words.region[0]
            return Progress.REOPENED if again else Progress.DONE
        return Progress.READING

    def _name(self) -> None:
        """What stands before a key is the name, once."""
        text = self._taken().strip()
        if self._writer.open:
            self.stray += text
        elif _NAME.fullmatch(text):
            self._writer.start(text)
        else:
            self.failed = True

    def _begin_value(self) -> None:
        self._taken()
        self._in_value = True
        key = self._key
        self._string = OpenString() if self._writer.takes_json(key) else None
        self.failed = self.failed or not key or not self._writer.open
        self._streams = (
            not self.failed
            and not self._writer.knows(key)
            and self._writer.streams(key)
        )
        if self._streams:
            self._writer.key(key)
            self._writer.raw('"')

    def _end_value(self) -> None:
        if not self._in_value:
            return
        self._in_value, self._string = False, None
        if self._streams:
            self._writer.raw('"')
        elif not self.failed and not self._writer.knows(self._key):
            self._writer.text(self._key, self._text)
        self._text = self._key = ""

    def _end(self) -> None:
        self._end_value()
        if not self._writer.open:
            self._name()  # a call without arguments is its name
        else:
            self.stray += self._taken().strip()
        if self._writer.open:
            self._writer.end()

    def _taken(self) -> str:
        text, self._text = self._text, ""
        return text
