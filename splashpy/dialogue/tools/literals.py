# SPDX-License-Identifier: Apache-2.0
"""Calls written as literals of a language, read when the block is complete.

``call:f{k:<|"|>text<|"|>,n:3}`` (Gemma) and ``[f(k="text", n=3)]`` (LFM2). Nothing is
ever evaluated: Python's own parser makes a tree, and only literals of it are taken.
"""

from __future__ import annotations

import ast
import json
import re
import warnings
from collections.abc import Callable
from typing import Any

from splashpy.dialogue.tools.reader import Progress, Tail
from splashpy.dialogue.tools.schema import is_number
from splashpy.dialogue.tools.writer import CallWriter

Call = tuple[str, dict[str, Any]]
Parse = Callable[[str], list[Call]]
"""Calls of a block; raises ValueError for a block that holds none."""

_NAME = re.compile(r"\s*call:([^\s{}<>]{1,128})\s*")
_KEY = re.compile(r"\s*([^:{}\[\],]{1,128}?)\s*:\s*")
_BARE = re.compile(r"[^,}\]]*")
_WORDS = {"true": True, "false": False, "null": None}
_DEPTH = 64


class BlockReader:
    """Keeps a block until its closing marker and reads it as a whole."""

    def __init__(
        self, parse: Parse, region: tuple[str, str], writer: CallWriter
    ) -> None:
        self.failed = False
        self.stray = ""
        self._parse = parse
        self._region = region
        self._writer = writer
        self._markers = Tail(region)
        self._text = ""

    @property
    def settled(self) -> bool:
        """See :class:`~splashpy.dialogue.tools.reader.CallReader`."""
        return True  # a block that was cut does not parse

    def push(self, character: str) -> Progress:
        """See :class:`~splashpy.dialogue.tools.reader.CallReader`."""
        passed, marker = self._markers.push(character)
        self._text += passed
        if not marker:
            return Progress.READING
        self._read()
        again = marker == self._region[0]
        return Progress.REOPENED if again else Progress.DONE

    def finish(self) -> None:
        """See :class:`~splashpy.dialogue.tools.reader.CallReader`."""
        self._text += self._markers.flush()
        self._read()

    def _read(self) -> None:
        try:
            calls = [
                (name, {key: _json(value) for key, value in arguments.items()})
                for name, arguments in self._parse(self._text)
            ]
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            self.failed = True
            return
        writer = self._writer
        for name, arguments in calls:
            writer.start(name)
            for key, value in arguments.items():
                writer.key(key)
                writer.raw(writer.typed(key, value))
            writer.end()


def braces(quote: str) -> Parse:
    """The parser for ``call:f{…}`` with strings between two ``quote`` marks."""
    return lambda text: _Braces(text, quote).calls()


def python_calls(text: str) -> list[Call]:
    """The calls of a Python list of calls, or of one call.

    Raises:
        ValueError: it holds anything but literals.
        SyntaxError: it is not Python.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SyntaxWarning)  # "\d" is a common argument
        tree = ast.parse(text.strip(), mode="eval").body
    nodes = tree.elts if isinstance(tree, ast.List | ast.Tuple) else [tree]
    calls = [_python_call(node) for node in nodes]
    if not calls:
        raise ValueError("no call")
    return calls


def _python_call(node: ast.expr) -> Call:
    if not isinstance(node, ast.Call) or node.args:
        raise ValueError("only calls with named arguments")
    arguments = {}
    for item in node.keywords:
        if item.arg is None:
            raise ValueError("no ** among the arguments")
        arguments[item.arg] = _literal(item.value)
    return ast.unparse(node.func), arguments


def _literal(node: ast.expr) -> Any:
    if isinstance(node, ast.Name) and node.id in _WORDS:
        return _WORDS[node.id]
    if isinstance(node, ast.List | ast.Tuple):
        return [_literal(item) for item in node.elts]
    if isinstance(node, ast.Dict):
        keys = [None if key is None else ast.literal_eval(key) for key in node.keys]
        values = [_literal(value) for value in node.values]
        return {str(k): v for k, v in zip(keys, values, strict=True)}
    return ast.literal_eval(node)


def _json(value: Any) -> str:
    """Compact JSON of a literal.

    Raises:
        ValueError: JSON cannot say it.
    """
    try:
        return json.dumps(
            value, ensure_ascii=False, separators=(",", ":"), allow_nan=False
        )
    except TypeError as error:
        raise ValueError(str(error)) from None


class _Braces:
    """A cursor over ``call:f{k:v,…}``."""

    def __init__(self, text: str, quote: str) -> None:
        self._text, self._quote, self._at = text, quote, 0

    def calls(self) -> list[Call]:
        """All calls of the text, separated by white space or commas."""
        calls = []
        while self._text[self._at :].strip(", \t\r\n"):
            name = self._match(_NAME)
            calls.append((name[1], self._members(_DEPTH)))
            while self._peek() and self._peek() in ", \t\r\n":
                self._at += 1
        if not calls:
            raise ValueError("no call")
        return calls

    def _members(self, depth: int) -> dict[str, Any]:
        self._take("{")
        members: dict[str, Any] = {}
        while not self._ends("}"):
            key = self._string() if self._quoted() else None
            if key is None:
                key = self._match(_KEY)[1]
            else:
                self._take(":")
            members[key] = self._value(depth)
            self._separate("}")
        return members

    def _value(self, depth: int) -> Any:
        if not depth:
            raise ValueError("too deep")
        self._skip_space()
        if self._quoted():
            return self._string()
        if self._peek() == "{":
            return self._members(depth - 1)
        if self._peek() == "[":
            return self._items(depth - 1)
        return _bare(self._match(_BARE)[0].strip())

    def _items(self, depth: int) -> list[Any]:
        self._take("[")
        items = []
        while not self._ends("]"):
            items.append(self._value(depth))
            self._separate("]")
        return items

    def _quoted(self) -> bool:
        self._skip_space()
        return self._text.startswith(self._quote, self._at)

    def _string(self) -> str:
        start = self._at + len(self._quote)
        end = self._text.find(self._quote, start)
        if end < 0:
            raise ValueError("a string does not end")
        self._at = end + len(self._quote)
        return self._text[start:end]

    def _separate(self, closer: str) -> None:
        self._skip_space()
        if self._peek() == ",":
            self._at += 1
        elif self._peek() != closer:
            raise ValueError(f"{closer} expected")

    def _ends(self, closer: str) -> bool:
        self._skip_space()
        if self._peek() != closer:
            return False
        self._at += 1
        return True

    def _take(self, character: str) -> None:
        self._skip_space()
        if self._peek() != character:
            raise ValueError(f"{character} expected")
        self._at += 1

    def _match(self, pattern: re.Pattern[str]) -> re.Match[str]:
        found = pattern.match(self._text, self._at)
        if found is None:
            raise ValueError(f"{pattern.pattern} expected")
        self._at = found.end()
        return found

    def _peek(self) -> str:
        return self._text[self._at : self._at + 1]

    def _skip_space(self) -> None:
        while self._peek() and self._peek() in " \t\r\n":
            self._at += 1


def _bare(text: str) -> Any:
    if text in _WORDS:
        return _WORDS[text]
    return json.loads(text) if is_number(text) else text
