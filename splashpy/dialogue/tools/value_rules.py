# SPDX-License-Identifier: Apache-2.0
"""What the schema of one argument says, in the words of a grammar."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

from splashpy.dialogue.tools.lark import ANY, UnwritableError, quoted
from splashpy.dialogue.tools.schema import resolved, types_in

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
_SHAPES = {
    "boolean": '"true" | "false"',
    "integer": "/-?(0|[1-9][0-9]{0,18})/",
    "number": r"/-?(0|[1-9][0-9]{0,18})(\.[0-9]{1,18})?/",
}


def plain_shape(
    schema: Any, root: Mapping[str, Any], *, exact: bool = True, typed: bool = False
) -> str:
    """A terminal's body for a value that is written as it stands.

    ``null`` is never written so: it would be read as that word.

    Args:
        schema: of a value that may be a string.
        root: what its references point into.
        exact: with everything the schema says of its characters.
        typed: it is said beside the value that it is a string.

    Raises:
        UnwritableError: it refers to nothing.
    """
    found: dict[str, None] = {}
    for each in alternatives(schema, root):
        types = types_in(each, root)
        if types is None or "string" in types:
            found |= dict.fromkeys(_text_shapes(each, exact=exact, typed=typed))
        elif not typed:
            found |= dict.fromkeys(_SHAPES.get(kind, ANY) for kind in types - {"null"})
    if not found or ANY in found:
        return ANY
    return " | ".join(f"({shape})" for shape in found)


def _text_shapes(schema: Mapping[str, Any], *, exact: bool, typed: bool) -> list[str]:
    values = choices(schema)
    if values:
        texts = [v if isinstance(v, str) else json.dumps(v) for v in values]
        pairs = zip(texts, values, strict=True)
        return [
            quoted(text)
            for text, value in pairs
            if isinstance(value, str) or (value is not None and not typed)
        ]
    return [string_shape(schema) if exact else ANY]


def string_shape(schema: Mapping[str, Any]) -> str:
    """A terminal's body for the characters of a string."""
    shapes = [_length(schema), _pattern(schema)]
    return " & ".join(filter(None, shapes)) or ANY


def alternatives(
    schema: Any,
    root: Mapping[str, Any],
    depth: int = 4,
    within: frozenset[str] = frozenset(),
) -> list[Mapping[str, Any]]:
    """The schemas one of which a value meets: without references, unions and sums.

    Args:
        schema: of a value.
        root: what its references point into.
        depth: of unions within unions; one that lies deeper is left as it is.
        within: references that led here; what refers back to them adds nothing.

    Raises:
        UnwritableError: it refers to nothing in there.
    """
    within |= _references([schema])
    schema = referred(schema, root)
    for word in ("allOf", "anyOf", "oneOf") if depth else ():
        parts = schema.get(word)
        if not isinstance(parts, list) or not parts:
            continue
        rest = {key: schema[key] for key in schema if key != word}
        new = (part for part in parts if not _references([part]) & within)
        parts = list({_text(part): part for part in new}.values())
        found: dict[str, Mapping[str, Any]] = {}
        for some in [parts] if word == "allOf" else [[part] for part in parts]:
            whole = merged([rest, *some], root)
            inner = alternatives(whole, root, depth - 1, within | _references(some))
            found |= {_text(each): each for each in inner}
        return list(found.values()) or [rest]
    return [schema]


def _references(schemas: Iterable[Any]) -> frozenset[str]:
    found = (each.get("$ref") for each in schemas if isinstance(each, Mapping))
    return frozenset(name for name in found if isinstance(name, str))


def _text(schema: Any) -> str:
    """Equal for equal schemas."""
    return json.dumps(schema, sort_keys=True, default=str)


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


def merged(schemas: Iterable[Any], root: Mapping[str, Any]) -> Mapping[str, Any]:
    """One schema that says what several say; of what they say twice, the last word.

    Args:
        schemas: of one value.
        root: what their references point into.

    Raises:
        UnwritableError: one refers to nothing in there.
    """
    found: dict[str, Any] = {}
    for schema in schemas:
        for word, value in referred(schema, root).items():
            before = found.get(word)
            if isinstance(before, Mapping) and isinstance(value, Mapping):
                value = {**before, **value}
            elif word == "required" and isinstance(before, list):
                value = [*before, *value] if isinstance(value, list) else before
            found[word] = value
    return found


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
