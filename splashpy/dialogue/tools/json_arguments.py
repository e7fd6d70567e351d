# SPDX-License-Identifier: Apache-2.0
"""The arguments of a call, written as a JSON object, passed on while they arrive."""

from __future__ import annotations

import json

from splashpy.dialogue.tools.json_tokens import BadJsonError, JsonToken
from splashpy.dialogue.tools.writer import CallWriter

_BRACKETS = {"}": "{", "]": "["}


class JsonStructure:
    """Checks that tokens form JSON, and knows how deep the next one stands."""

    def __init__(self) -> None:
        self._open: list[str] = []
        self._expected = "value"

    @property
    def depth(self) -> int:
        """Brackets that are open."""
        return len(self._open)

    @property
    def at_key(self) -> bool:
        """Whether a string that begins now is a key."""
        return self._expected == "key"

    @property
    def complete(self) -> bool:
        """Whether the value has ended."""
        return self._expected == "nothing"

    def take(self, token: JsonToken) -> None:
        """Take a token.

        Raises:
            BadJsonError: it may not stand here.
        """
        kind = token.kind
        if kind in "{[":
            self._need("value")
            self._open.append(kind)
            self._expected = "key" if kind == "{" else "value"
        elif kind in _BRACKETS:
            self._close(kind)
        elif kind == ",":
            self._need("comma")
            self._expected = "key" if self._open[-1] == "{" else "value"
        elif kind == ":":
            self._need("colon")
            self._expected = "value"
        elif kind == "scalar":
            self._need("value")
            self._after_value()
        elif kind == '"':
            self._begin_string()
        elif kind == "end":
            if self._expected == "in key":
                self._expected = "colon"
            else:
                self._after_value()

    def _need(self, what: str) -> None:
        if self._expected != what:
            raise BadJsonError(f"{self._expected} expected")

    def _begin_string(self) -> None:
        if self._expected not in ("key", "value"):
            raise BadJsonError("no string may stand here")
        self._expected = f"in {self._expected}"

    def _close(self, kind: str) -> None:
        # A comma before the bracket is forgiven: Python writes it, models do too.
        fits = self._open and self._open[-1] == _BRACKETS[kind]
        ends = self._expected == "comma" or self.at_key or self._ends_list(kind)
        if not fits or not ends:
            raise BadJsonError(f"{kind} may not stand here")
        self._open.pop()
        self._after_value()

    def _ends_list(self, kind: str) -> bool:
        return kind == "]" and self._expected == "value"

    def _after_value(self) -> None:
        self._expected = "comma" if self._open else "nothing"


class JsonArguments:
    """Passes the members of one object to a writer.

    Text of strings is passed on piece by piece unless the schema asks for another type.
    """

    def __init__(self, writer: CallWriter) -> None:
        self._writer = writer
        self._structure = JsonStructure()
        self._key = ""
        self._held: list[str] | None = None  # a value that is looked at when whole
        self._reading_key = False
        self._dropped = False
        self._comma = False

    @property
    def complete(self) -> bool:
        """Whether the object has ended."""
        return self._structure.complete

    def take(self, token: JsonToken) -> None:
        """Take a token.

        Raises:
            BadJsonError: it is no object.
        """
        before = self._structure.depth
        if not before and token.kind != "{":
            raise BadJsonError("arguments are an object")
        in_key = before == 1 and (self._structure.at_key or self._reading_key)
        self._structure.take(token)
        if in_key and token.kind in ('"', "piece", "end"):
            self._take_key(token)
        elif before > 1 or (before == 1 and token.kind not in (",", ":", "}")):
            self._take_value(token, top=before == 1)

    def _take_key(self, token: JsonToken) -> None:
        if token.kind == '"':
            self._key, self._reading_key = "", True
        elif token.kind == "piece":
            self._key += token.text
        else:
            self._reading_key = False
            self._begin_value(_unescaped(self._key))

    def _begin_value(self, key: str) -> None:
        self._key = key
        self._dropped = self._writer.knows(key)
        if not self._dropped:
            self._writer.key(key)

    def _take_value(self, token: JsonToken, *, top: bool) -> None:
        if self._dropped:
            return
        if top and token.kind == "scalar":
            self._writer.raw(self._writer.typed(self._key, token.text))
        elif top and token.kind == '"' and not self._writer.takes_text(self._key):
            self._held = ['"']
        elif self._held is not None:
            self._hold(token)
        else:
            self._writer.raw(self._rewritten(token))

    def _hold(self, token: JsonToken) -> None:
        held = self._held or []
        if token.kind == "piece":
            held.append(token.text)
            return
        self._held = None
        self._writer.raw(self._writer.typed(self._key, "".join(held) + '"'))

    def _rewritten(self, token: JsonToken) -> str:
        comma = "," if self._comma and token.kind not in ("}", "]") else ""
        self._comma = token.kind == ","
        if token.kind == ",":
            return ""  # written before what follows, if anything does
        text = {"end": '"', "piece": token.text, "scalar": token.text}
        return comma + text.get(token.kind, token.kind)


def _unescaped(text: str) -> str:
    return json.loads(f'"{text}"')
