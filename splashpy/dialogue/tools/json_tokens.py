# SPDX-License-Identifier: Apache-2.0
"""JSON as models write it, cut into tokens one character after the other.

Beside JSON it takes what models are known to write instead: raw line breaks in strings,
strings in single quotes, and Python's ``True``, ``False`` and ``None``.
"""

from __future__ import annotations

import re
from typing import Literal, NamedTuple

from splashpy.dialogue.tools.rewriting import escaped
from splashpy.dialogue.tools.schema import is_number

Kind = Literal["{", "}", "[", "]", ":", ",", '"', "piece", "end", "scalar"]

_WORDS = {"True": "true", "False": "false", "None": "null"}
_WORDS |= {word: word for word in ("true", "false", "null")}
_HEX = re.compile(r"[0-9a-fA-F]{4}")
_HIGH = re.compile(r"[dD][89abAB][0-9a-fA-F]{2}")
_LOW = re.compile(r"[dD][c-fC-F][0-9a-fA-F]{2}")
_ESCAPES = {**{c: f"\\{c}" for c in '"\\/bfnrt'}, "'": "'", "/": "/"}
_SPACE = " \t\r\n"


class JsonToken(NamedTuple):
    """A token; strings come as ``"``, any number of pieces, and ``end``.

    ``text`` of a piece is what stands between the quotes of a JSON string, of a scalar
    its JSON.
    """

    kind: Kind
    text: str = ""


class BadJsonError(Exception):
    """The text is not JSON; never leaves the readers."""


class JsonTokens:
    """Cuts one text into tokens."""

    def __init__(self) -> None:
        self._quote = ""
        self._escape = ""  # an escape so far, with its backslash
        self._high = ""  # a high surrogate whose other half must follow
        self._word = ""

    @property
    def inside_string(self) -> bool:
        """Whether the next character belongs to a string."""
        return bool(self._quote)

    def push(self, character: str) -> list[JsonToken]:
        """Tokens that are complete with this character.

        Raises:
            BadJsonError: no JSON continues this way.
        """
        if self._quote:
            return self._in_string(character)
        if character in _SPACE or character in "{}[]:,\"'":
            return [*self._end_word(), *self._begin(character)]
        self._word += character
        return []

    def _end_word(self) -> list[JsonToken]:
        word, self._word = self._word, ""
        if not word:
            return []
        value = _WORDS.get(word, word if is_number(word) else "")
        if not value:
            raise BadJsonError(word)
        return [JsonToken("scalar", value)]

    def _begin(self, character: str) -> list[JsonToken]:
        if character in _SPACE:
            return []
        if character in "\"'":
            self._quote = character
            return [JsonToken('"')]
        return [JsonToken(character)]  # type: ignore[arg-type]

    def _in_string(self, character: str) -> list[JsonToken]:
        if self._escape:
            return self._in_escape(character)
        if character == "\\":
            self._escape = character
            return []
        lost = self._lose_high()
        if character == self._quote:
            self._quote = ""
            return [*lost, JsonToken("end")]
        return [*lost, JsonToken("piece", escaped(character))]

    def _in_escape(self, character: str) -> list[JsonToken]:
        self._escape += character
        body = self._escape[1:]
        if body[0] == "u":
            return [] if len(body) < 5 else self._unicode(body[1:])
        self._escape = ""
        # An escape JSON does not know: the backslash was meant.
        text = _ESCAPES.get(body) or escaped("\\" + body)
        return [*self._lose_high(), JsonToken("piece", text)]

    def _unicode(self, digits: str) -> list[JsonToken]:
        self._escape = ""
        if not _HEX.fullmatch(digits):
            return [*self._lose_high(), JsonToken("piece", escaped(f"\\u{digits}"))]
        if self._high and _LOW.fullmatch(digits):
            pair = bytes.fromhex(self._high + digits).decode("utf-16-be")
            self._high = ""
            return [JsonToken("piece", escaped(pair))]
        lost = self._lose_high()
        if _HIGH.fullmatch(digits):
            self._high = digits
            return lost
        return [*lost, JsonToken("piece", escaped(chr(int(digits, 16))))]

    def _lose_high(self) -> list[JsonToken]:
        """A surrogate that stayed alone is no character."""
        lost = bool(self._high)
        self._high = ""
        return [JsonToken("piece", "\ufffd")] if lost else []
