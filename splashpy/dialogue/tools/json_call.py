# SPDX-License-Identifier: Apache-2.0
"""Calls written as JSON: a whole object, or a head and then the arguments."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

from splashpy.dialogue.tools.json_arguments import JsonArguments, JsonStructure
from splashpy.dialogue.tools.json_tokens import BadJsonError, JsonToken, JsonTokens
from splashpy.dialogue.tools.reader import Progress, Tail
from splashpy.dialogue.tools.writer import CallWriter

_ARGUMENTS = ("arguments", "parameters", "args")
_BETWEEN = " \t\r\n,;[]"


class JsonCallReader:
    """Reads one or more JSON calls between two markers.

    Args:
        region: opening and closing marker; an empty closing one: up to the end.
        writer: takes the calls.
    """

    def __init__(self, region: tuple[str, str], writer: CallWriter) -> None:
        self.failed = False
        self.stray = ""
        self._region = region
        self._writer = writer
        self._markers = Tail(filter(None, region))
        self._tokens = JsonTokens()
        self._call: _JsonCall | None = None

    @property
    def settled(self) -> bool:
        """See :class:`~splashpy.dialogue.tools.reader.CallReader`."""
        return self._call is None

    def push(self, character: str) -> Progress:
        """See :class:`~splashpy.dialogue.tools.reader.CallReader`."""
        in_string = self._call is not None and self._tokens.inside_string
        passed, marker = self._markers.push(character)
        if self._call is None or self.failed:
            return self._between(passed, marker)
        if marker and not in_string:
            self.failed = True  # the call ends before its JSON does
            return self._ended(marker)
        self._read(character)
        return Progress.READING

    def finish(self) -> None:
        """See :class:`~splashpy.dialogue.tools.reader.CallReader`."""
        if self._call is not None:
            self.failed = True
        else:
            self._note(self._markers.flush())

    def _between(self, passed: str, marker: str) -> Progress:
        if not self.failed:
            self._note(passed)
        return self._ended(marker) if marker else Progress.READING

    def _ended(self, marker: str) -> Progress:
        again = marker == self._region[0]
        return Progress.REOPENED if again else Progress.DONE

    def _note(self, text: str) -> None:
        """Text between two calls, which may begin the next one."""
        for character in text:
            if self._call is not None:
                self._read(character)
            elif character == "{":
                self._tokens = JsonTokens()
                self._call = _JsonCall(self._writer)
                self._read(character)
            elif character not in _BETWEEN:
                self.stray += character

    def _read(self, character: str) -> None:
        if self._call is None or self.failed:
            return
        try:
            for token in self._tokens.push(character):
                self._call.take(token)
        except BadJsonError:
            self.failed = True
            return
        if self._call.complete:
            self._call = None


class _JsonCall:
    """The object of one call; its members may come in any order."""

    def __init__(self, writer: CallWriter) -> None:
        self._writer = writer
        self._structure = JsonStructure()
        self._level = 1  # 2 inside {"function": {…}}
        self._key: str | None = None
        self._text: list[str] | None = None  # a string on its way
        self._name: str | None = None
        self._id = ""
        self._early: list[JsonToken] = []  # arguments that came before the name
        self._arguments: JsonArguments | None = None
        self.complete = False

    def take(self, token: JsonToken) -> None:
        """Take a token.

        Raises:
            BadJsonError: this is no call.
        """
        depth = self._structure.depth
        at_key = self._structure.at_key
        self._structure.take(token)
        if self._structure.complete:
            self._end()
        elif depth == self._level and token.kind in ('"', "piece", "end"):
            self._take_string(token, is_key=at_key)
        elif self._key in _ARGUMENTS and (
            depth > self._level or token.kind not in (":", ",", "}")
        ):
            self._take_argument(token)
        elif depth == 1 and self._key == "function" and token.kind == "{":
            self._level = 2
        elif depth == self._level and token.kind == ",":
            self._key = None

    def _take_string(self, token: JsonToken, *, is_key: bool) -> None:
        if token.kind == '"':
            self._text = []
            if is_key:
                self._key = None
        elif token.kind == "piece" and self._text is not None:
            self._text.append(token.text)
        elif self._text is not None:
            text = json.loads(f'"{"".join(self._text)}"')
            self._text = None
            self._take_member(text)

    def _take_member(self, text: str) -> None:
        if self._key is None:
            self._key = text
        elif self._key == "name":
            self._name = text
            self._start_if_known()
        elif self._key == "id":
            self._id = text
        elif self._key in _ARGUMENTS:
            self._take_written(text)

    def _take_written(self, text: str) -> None:
        """Arguments that are a string holding JSON."""
        tokens = JsonTokens()
        for character in text or "{}":
            for token in tokens.push(character):
                self._take_argument(token)

    def _take_argument(self, token: JsonToken) -> None:
        begun = self._early or self._arguments is not None
        if token == JsonToken("scalar", "null") and not begun:
            return
        self._early.append(token)
        if self._name is not None:
            self._start_if_known()

    def _start_if_known(self) -> None:
        """Begin the call when name and arguments are known; pass on what waits."""
        if self._name is None or not self._early:
            return
        if self._arguments is None:
            self._start()
            self._arguments = JsonArguments(self._writer)
        waiting, self._early = self._early, []
        for token in waiting:
            self._arguments.take(token)

    def _start(self) -> None:
        if not self._name:
            raise BadJsonError("no name")
        self._writer.start(self._name, self._id)

    def _end(self) -> None:
        if self._arguments is None:
            self._start()
        elif not self._arguments.complete:
            raise BadJsonError("the arguments are not complete")
        self._writer.end()
        self.complete = True


@dataclass(frozen=True, slots=True)
class HeadWords:
    """How a family writes a head before the arguments.

    Attributes:
        head: pattern of the whole head; its groups are ``name`` and, where the model
            writes one, ``id``.
        arguments: marker between head and arguments.
        begin: marker before a head; empty where there is none.
        end: marker after the arguments; empty where there is none.
    """

    head: re.Pattern[str]
    arguments: str
    begin: str = ""
    end: str = ""


class HeadedReader:
    """Reads calls of a head and a JSON object; a JSON list of calls is read too."""

    def __init__(
        self, words: HeadWords, region: tuple[str, str], writer: CallWriter
    ) -> None:
        self.failed = False
        self.stray = ""
        self._words = words
        self._region = region
        self._writer = writer
        markers = filter(None, (words.begin, words.end, words.arguments, *region))
        self._markers = Tail(markers)
        self._head = ""
        self._tokens = JsonTokens()
        self._arguments: JsonArguments | None = None
        self._list: JsonCallReader | None = None

    @property
    def settled(self) -> bool:
        """See :class:`~splashpy.dialogue.tools.reader.CallReader`."""
        return self._arguments is None and (self._list is None or self._list.settled)

    def push(self, character: str) -> Progress:
        """See :class:`~splashpy.dialogue.tools.reader.CallReader`."""
        if self._list is not None:
            return self._in_list(character)
        if self._arguments is not None:
            self._read(character)
            return Progress.READING
        passed, marker = self._markers.push(character)
        if not self.failed:
            self._head += passed
        if not self._head.strip() and marker != self._words.arguments:
            self._head = ""
        if self._head.lstrip()[:1] in ("[", "{") and self._head.strip():
            return self._begin_list()
        return self._marked(marker) if marker else Progress.READING

    def finish(self) -> None:
        """See :class:`~splashpy.dialogue.tools.reader.CallReader`."""
        if self._list is not None:
            self._list.finish()
            self.failed = self._list.failed
            self.stray += self._list.stray
        elif self._arguments is not None:
            self.failed = True
        else:
            rest = self._head + self._markers.flush()
            self.stray += rest if rest.strip() else ""

    def _begin_list(self) -> Progress:
        self._list = JsonCallReader(self._region, self._writer)
        text, self._head = self._head, ""
        for character in text:
            self._in_list(character)
        return Progress.READING

    def _in_list(self, character: str) -> Progress:
        assert self._list is not None
        progress = self._list.push(character)
        self.failed = self._list.failed
        if progress is not Progress.READING:
            self.stray += self._list.stray
            self._list = None
        return progress

    def _marked(self, marker: str) -> Progress:
        head, self._head = self._head, ""
        if marker == self._words.arguments:
            self._begin(head)
            return Progress.READING
        self.stray += head if head.strip() else ""
        if marker == self._region[1]:
            return Progress.DONE
        again = marker == self._region[0]
        return Progress.REOPENED if again else Progress.READING

    def _begin(self, head: str) -> None:
        found = self._words.head.fullmatch(head.strip())
        if found is None or self.failed:
            self.failed = True
            return
        groups = found.groupdict()
        self._writer.start(groups["name"], groups.get("id") or "")
        self._tokens = JsonTokens()
        self._arguments = JsonArguments(self._writer)

    def _read(self, character: str) -> None:
        assert self._arguments is not None
        try:
            for token in self._tokens.push(character):
                self._arguments.take(token)
        except BadJsonError:
            self.failed, self._arguments = True, None
            return
        if self._arguments.complete:
            self._writer.end()
            self._arguments = None
