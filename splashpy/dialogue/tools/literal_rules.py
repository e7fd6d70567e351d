# SPDX-License-Identifier: Apache-2.0
"""Schemas as rules for literals of a language: Python's, or Gemma's own.

Types, members, items and their number, listed values and what is said of numbers and
strings are kept; what ties several values together, such as ``uniqueItems``, is not.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from splashpy.dialogue.tools.lark import ANY, LarkRules, UnwritableError, quoted
from splashpy.dialogue.tools.notation import Literals
from splashpy.dialogue.tools.schema import TYPES, types_in
from splashpy.dialogue.tools.value_rules import (
    JSON_OPTIONS,
    alternatives,
    choices,
    string_shape,
)

_DEPTH = 8  # of values within values; below, anything may stand
_PLAIN = r'[^"\\\x00-\x1f\x7f]'
_ESCAPED = rf'(\\["\\nrt]|{_PLAIN})'
_NUMBER = r"/-?(0|[1-9][0-9]{0,18})(\.[0-9]{1,18})?([eE][+-]?[0-9]{1,2})?/"
_SIZES = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf")
_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_ANY_KEY = "/[A-Za-z_][A-Za-z0-9_]{0,63}/"


class LiteralRules:
    """Writes rules for one tool.

    Args:
        rules: takes them.
        words: of the language.
        root: the tool's schema.
    """

    def __init__(self, rules: LarkRules, words: Literals, root: Mapping[str, Any]):
        self._rules, self._words, self._root = rules, words, root
        self._known: dict[tuple[str, int], str] = {}

    def arguments(self) -> str:
        """Words for all arguments, without what stands around them."""
        return self._object(self._root, self._words.key, _DEPTH)

    def _value(self, schema: Any, depth: int) -> str:
        key = (json.dumps(schema, sort_keys=True), depth)
        if key not in self._known:  # one that refers to itself comes again and again
            found = alternatives(schema, self._root)
            words = [self._alternative(each, depth) for each in found]
            self._known[key] = self._one_of(words)
        return self._known[key]

    def _alternative(self, schema: Mapping[str, Any], depth: int) -> str:
        if not depth or not schema:
            return self._any(min(depth, _DEPTH // 2))
        listed = choices(schema)
        if listed:
            return self._one_of([self._literal(value) for value in listed])
        types = types_in(schema, self._root)
        if types is None:
            return self._any(min(depth, _DEPTH // 2))
        return self._one_of([self._typed(t, schema, depth) for t in sorted(types)])

    def _typed(self, kind: str, schema: Mapping[str, Any], depth: int) -> str:
        rules, (true, false, null) = self._rules, self._words.words
        if kind == "string":
            return self._string(schema)
        if kind == "boolean":
            return f"( {quoted(true)} | {quoted(false)} )"
        if kind == "array":
            return self._array(schema, depth - 1)
        if kind == "object":
            inner = self._object(schema, self._words.inner_key, depth - 1)
            return f'"{{" {inner} "}}"'
        if kind == "null":
            return quoted(null)
        sizes = {name: schema[name] for name in _SIZES if name in schema}
        if sizes or kind == "integer":
            return rules.schema({"type": kind, **sizes}, JSON_OPTIONS)
        return rules.terminal(_NUMBER)  # no larger than a float can be

    def _string(self, schema: Mapping[str, Any]) -> str:
        words, rules = self._words, self._rules
        shape = string_shape(schema)
        if words.escapes and shape == ANY:
            shape = f"/{_ESCAPED}*/"
        elif words.escapes:  # counted as they stand, so without any escapes
            shape = f"{rules.terminal(shape)} & /{_PLAIN}*/"
        return (
            f"{rules.said(words.quote)} {rules.plain(words.quote, words.never, shape)}"
        )

    def _array(self, schema: Mapping[str, Any], depth: int) -> str:
        least, most = schema.get("minItems"), schema.get("maxItems")
        least = least if isinstance(least, int) else 0
        if not isinstance(most, int):
            later = f"{{{max(least - 1, 0)},}}"
        elif most < max(least, 0):
            raise UnwritableError(f"a list of {least} to {most} items")
        elif not most:
            return '"[" "]"'
        else:
            later = f"{{{max(least - 1, 0)},{most - 1}}}"
        item = self._rules.rule(self._value(schema.get("items"), depth))
        some = f"{item} ( {quoted(self._words.comma)} {item} ){later}"
        return f'"[" {some} "]"' if least > 0 else f'"[" ( {some} )? "]"'

    def _object(self, schema: Mapping[str, Any], head: str, depth: int) -> str:
        properties = schema.get("properties")
        if not isinstance(properties, Mapping) or not properties:
            further = schema.get("additionalProperties")
            return '""' if further is False else self._members(head, further, depth)
        required = schema.get("required")
        needed, others = [], []
        for key, value in properties.items():
            if not _KEY.fullmatch(key):
                raise UnwritableError(f"{key!r} is no name of an argument here")
            some = needed if isinstance(required, list) and key in required else others
            before = self._rules.said(head.replace("{key}", key))
            some.append(f"{before} {self._value(value, depth)}")
        return self._rules.members(needed, others, self._words.comma)

    def _members(self, head: str, schema: Any, depth: int) -> str:
        """Members of any names, whose values are of a schema."""
        rules = self._rules
        before, _, after = head.partition("{key}")
        value = self._value(schema, depth)
        one = rules.rule(f"{rules.said(before)} {_ANY_KEY} {rules.said(after)} {value}")
        return f"( {one} ( {quoted(self._words.comma)} {one} )* )?"

    def _any(self, depth: int) -> str:
        """Any value, nested so deep at most."""
        kinds = TYPES if depth > 1 else TYPES - {"array", "object"}
        kinds -= {"integer"}
        return self._one_of([self._typed(kind, {}, depth) for kind in sorted(kinds)])

    def _literal(self, value: Any) -> str:
        """Words for one value."""
        words, rules = self._words, self._rules
        if isinstance(value, str):
            text = json.dumps(value)[1:-1] if words.escapes else value
            return rules.said(words.quote + text + words.quote)
        if value is None or isinstance(value, bool):
            return quoted(words.words[2 if value is None else 1 - value])
        if isinstance(value, list):
            inner = f" {quoted(words.comma)} ".join(map(self._literal, value))
            return f'"[" {inner} "]"'
        if isinstance(value, dict):
            return self._literal_object(value)
        return quoted(json.dumps(value))

    def _literal_object(self, value: Mapping[str, Any]) -> str:
        members = []
        for key, item in value.items():
            if not _KEY.fullmatch(key):
                raise UnwritableError(f"{key!r} is no name of a member here")
            head = self._words.inner_key.replace("{key}", key)
            members.append(f"{self._rules.said(head)} {self._literal(item)}")
        return f'"{{" {f" {quoted(self._words.comma)} ".join(members)} "}}"'

    def _one_of(self, words: list[str]) -> str:
        return self._rules.rule(" | ".join(words)) if len(words) > 1 else words[0]
