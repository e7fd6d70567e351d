# SPDX-License-Identifier: Apache-2.0
"""What the schema of one argument says, in the words of a grammar."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from splashpy.dialogue.tools.lark import ANY, UnwritableError, quoted
from splashpy.dialogue.tools.schema import resolved

WHITE_SPACE = {"whitespace_pattern": "[ \\n\\r\\t]{0,32}"}
"""A small model may indent for ever where nothing forbids it."""

JSON_OPTIONS: Mapping[str, Any] = WHITE_SPACE
LOOSE_OPTIONS: Mapping[str, Any] = {
    **WHITE_SPACE,
    "lenient": True,
    "coerce_one_of": True,
}
"""For schemas that say what no grammar can; ``oneOf`` becomes ``anyOf``."""

_MOST_REPEATS = 4096  # of one character; a regular expression unrolls them


def plain_shape(schema: Mapping[str, Any], *, exact: bool = True) -> str:
    """A terminal's body for a value that is written as it stands.

    Args:
        schema: of a value that may be a string.
        exact: with everything the schema says of its characters.
    """
    values = choices(schema)
    if values:
        texts = [v if isinstance(v, str) else json.dumps(v) for v in values]
        return " | ".join(map(quoted, texts))
    if not exact:
        return ANY
    shapes = [_length(schema), _pattern(schema)]
    return " & ".join(filter(None, shapes)) or ANY


def referred(schema: Any, root: Mapping[str, Any]) -> Mapping[str, Any]:
    """A schema without its reference; empty where it says nothing.

    Args:
        schema: of a value.
        root: what its references point into.

    Raises:
        UnwritableError: it refers to nothing in there.
    """
    found = resolved(schema, root)
    if found is None and isinstance(schema, Mapping):
        raise UnwritableError(f"{schema['$ref']} is nowhere in the schema")
    return found if isinstance(found, Mapping) else {}


def choices(schema: Mapping[str, Any]) -> list[Any]:
    """The only values of a schema that lists them."""
    if "const" in schema:
        return [schema["const"]]
    values = schema.get("enum")
    return values if isinstance(values, list) else []


def type_word(types: frozenset[str] | None) -> str:
    """The type of an argument where one has to be named."""
    if types is None or "string" in types:
        return "string"
    some = sorted(types - {"null"}) or ["null"]
    return "number" if some[0] == "integer" else some[0]


def _length(schema: Mapping[str, Any]) -> str:
    least, most = schema.get("minLength", 0), schema.get("maxLength")
    counted = isinstance(least, int) and least <= _MOST_REPEATS
    least = least if counted else 0
    if not isinstance(most, int) or most > _MOST_REPEATS:
        return f"/(?s:.{{{least},}})/" if least else ""
    return f"/(?s:.{{{least},{max(least, most)}}})/"


def _pattern(schema: Mapping[str, Any]) -> str:
    """A pattern as JSON Schema means it: found anywhere, unless it is anchored."""
    from llguidance import regex_to_lark  # noqa: PLC0415 - few answers need it

    pattern = schema.get("pattern")
    if not isinstance(pattern, str) or not pattern:
        return ""
    begins = pattern.startswith("^")
    ends = re.search(r"(?<!\\)(?:\\\\)*\$\Z", pattern) is not None
    inner = regex_to_lark(pattern[begins : len(pattern) - ends], "dw")
    before, after = ("" if begins else "(?s:.*)", "" if ends else "(?s:.*)")
    return f"/{before}(?:{inner})" + f"{after}/"
