# SPDX-License-Identifier: Apache-2.0
"""What the schema of a tool says about an argument, and arguments written that way.

Models write arguments as text. Whether ``3.10`` is a version or a number is the
schema's to say; where it says nothing, only text that can hardly mean anything else
becomes a value that is not a string.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from splashpy.dialogue.tools.rewriting import compact, quoted

TYPES = frozenset(("string", "integer", "number", "boolean", "null", "array", "object"))
_STRING = frozenset(("string",))
_NUMBER = re.compile(r"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?")
_WHOLE = re.compile(r"(-?\d+)\.0+")
_SHORT = 32  # a longer text without a schema is prose, even if it reads as a number
_DEPTH = 16  # of references and unions


class ToolSchemas:
    """The parameters of the tools a request offers.

    Args:
        tools: OpenAI tool objects, ``{"type": "function", "function": {…}}``.

    Attributes:
        strict: names of those whose calls have to keep to their schema.
    """

    def __init__(self, tools: Iterable[Mapping[str, Any]] = ()) -> None:
        self._parameters: dict[str, Mapping[str, Any]] = {}
        self.strict: set[str] = set()
        for tool in tools:
            function = tool.get("function", tool)
            name = function.get("name") if isinstance(function, Mapping) else None
            if isinstance(name, str):
                parameters = function.get("parameters")
                known = parameters if isinstance(parameters, Mapping) else {}
                self._parameters[name] = known
                if function.get("strict") is True:
                    self.strict.add(name)

    def __contains__(self, name: str) -> bool:
        return name in self._parameters

    @property
    def names(self) -> tuple[str, ...]:
        """The tools, in their order."""
        return tuple(self._parameters)

    def parameters(self, name: str) -> Mapping[str, Any]:
        """The schema of a tool's arguments; empty where nothing is said about them."""
        return self._parameters.get(name, {})

    def types(self, name: str, key: str) -> frozenset[str] | None:
        """Types an argument may have; None where nothing is said about it."""
        root = self.parameters(name)
        return types_in(member(root, key), root)


def member(root: Mapping[str, Any], key: str) -> Any:
    """The schema of one member of an object; None where there is none."""
    properties = root.get("properties")
    return properties.get(key) if isinstance(properties, Mapping) else None


def types_in(schema: Any, root: Mapping[str, Any]) -> frozenset[str] | None:
    """Types a value may have; None where nothing is said about it.

    Args:
        schema: of the value.
        root: what its references point into.
    """
    return _types(schema, root, _DEPTH, frozenset()) or None


def resolved(schema: Any, root: Mapping[str, Any]) -> Any:
    """A schema, or what it refers to; None where that is nothing."""
    for _ in range(_DEPTH):
        reference = schema.get("$ref") if isinstance(schema, Mapping) else None
        if not isinstance(reference, str):
            return schema
        schema = _referred(reference, root)
    return None


def verbatim(types: frozenset[str] | None) -> bool:
    """Whether a text is the value as it stands: strings, or strings and null."""
    return types is not None and types - {"null"} == _STRING


def written(text: str, types: frozenset[str] | None) -> str:
    """A value written as plain text, as JSON.

    Args:
        text: the argument as the model wrote it.
        types: what the schema allows; None where it says nothing.
    """
    if types is None:
        return _guessed(text)
    if verbatim(types):
        return quoted(text)
    value = _parsed(text)
    if value is None:
        return quoted(text)
    allowed = types - ({"string", "null"} if "string" in types else frozenset())
    return _fitted(value, allowed) or (quoted(text) if "string" in types else value)


def rewritten(value: str, types: frozenset[str] | None) -> str:
    """A value the model wrote as JSON, in the type the schema asks for if it can be.

    Args:
        value: compact JSON of a string or a scalar.
        types: what the schema allows; None where it says nothing.
    """
    if types is None or _fitted(value, types) == value:
        return value
    if value.startswith('"'):
        inner = _parsed(json.loads(value))
        return (_fitted(inner, types) if inner is not None else None) or value
    fitted = _fitted(value, types)
    if fitted is not None:
        return fitted
    return quoted(value) if verbatim(types) and value != "null" else value


def _guessed(text: str) -> str:
    plain = text.strip()
    short = len(plain) <= _SHORT and "\n" not in plain
    if plain[:1] in ("{", "[") or (short and plain == text):
        value = compact(plain)
        if value is not None and not value.startswith('"'):
            return value
    return quoted(text)


def _parsed(text: str) -> str | None:
    """Compact JSON of a text that is JSON or a Python literal."""
    plain = text.strip()
    value = compact(plain)
    if value is not None:
        return value
    try:
        literal = ast.literal_eval(plain)
        return json.dumps(
            literal, ensure_ascii=False, separators=(",", ":"), allow_nan=False
        )
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return None


def _fitted(value: str, types: frozenset[str]) -> str | None:
    """The value as one of ``types``; None where it is none of them."""
    kind = _type_of(value)
    if kind in types or (kind == "integer" and "number" in types):
        return value
    whole = _WHOLE.fullmatch(value)
    if whole and "integer" in types:
        return whole[1]
    return None


def _type_of(value: str) -> str:
    """The JSON type of compact JSON text."""
    known = {'"': "string", "{": "object", "[": "array", "n": "null"}
    known |= {"t": "boolean", "f": "boolean"}
    first = value[:1]
    if first in known:
        return known[first]
    return "integer" if re.fullmatch(r"-?\d+", value) else "number"


def is_number(text: str) -> bool:
    """Whether the text is a number in JSON."""
    return _NUMBER.fullmatch(text) is not None


def _types(
    schema: Any, root: Mapping[str, Any], depth: int, within: frozenset[str]
) -> frozenset[str] | None:
    """``within``: references that led here; one back to them allows nothing new."""
    if not isinstance(schema, Mapping) or not depth:
        return None
    reference = schema.get("$ref")
    if isinstance(reference, str):
        if reference in within:
            return frozenset()
        found, within = _referred(reference, root), within | {reference}
        return _types(found, root, depth - 1, within)
    named = schema.get("type")
    if isinstance(named, str):
        named = (named,)
    if isinstance(named, list | tuple):
        found = TYPES.intersection(item for item in named if isinstance(item, str))
        if found:
            return _with_null(found, schema)
    values = _literal_values(schema)
    if values:
        return _with_null(frozenset(_type_of(json.dumps(v)) for v in values), schema)
    return _of_parts(schema, root, depth, within)


def _of_parts(
    schema: Mapping[str, Any],
    root: Mapping[str, Any],
    depth: int,
    within: frozenset[str],
) -> frozenset[str] | None:
    for word in ("anyOf", "oneOf", "allOf"):
        parts = schema.get(word)
        if not isinstance(parts, list):
            continue
        kinds = [_types(part, root, depth - 1, within) for part in parts]
        known = [kind for kind in kinds if kind is not None]
        if not known or (word != "allOf" and len(known) < len(kinds)):
            continue
        if word == "allOf":
            return frozenset.intersection(*known) or frozenset.union(*known)
        return _with_null(frozenset.union(*known), schema)
    if "properties" in schema:
        return frozenset(("object",))
    return frozenset(("array",)) if "items" in schema else None


def _literal_values(schema: Mapping[str, Any]) -> Sequence[Any]:
    if "const" in schema:
        return [schema["const"]]
    values = schema.get("enum")
    return values if isinstance(values, list) else ()


def _with_null(found: frozenset[str], schema: Mapping[str, Any]) -> frozenset[str]:
    return found | {"null"} if schema.get("nullable") is True else found


def _referred(reference: str, root: Mapping[str, Any]) -> Any:
    """What a local reference such as ``#/$defs/Point`` names; None where nothing."""
    node: Any = root
    for step in reference.removeprefix("#").strip("/").split("/"):
        key = step.replace("~1", "/").replace("~0", "~")
        node = node.get(key) if isinstance(node, Mapping) and step else node
    return node if reference.startswith("#") else None
