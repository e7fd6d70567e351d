# SPDX-License-Identifier: Apache-2.0
"""What an answer must look like, in the words of every dialect.

A request may say it once. The reasoning before an answer stays free, and where tools
may be called, an answer may be a call instead.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from splashpy.protocol import Constraint
from splashpy.server.errors import ApiError
from splashpy.server.fields import Fields

_VLLM = "structured_outputs"
_GUIDED = "guided_"


def read_constraint(body: Fields) -> Constraint | None:
    """What a body of OpenAI's or llama.cpp's shape asks for; None leaves it free.

    Raises:
        ApiError: the wrong form, or several at once.
    """
    found = _native(body)
    for fields, prefix in ((body, _GUIDED), (body.object(_VLLM), "")):
        found |= _vllm(fields, prefix)
    if body.has("response_format"):
        form = body.object("response_format")
        found["response_format"] = read_format(form)
    return _only(found)


def read_nested(form: Fields, place: str) -> Constraint | None:
    """What an object that describes the form of an output asks for.

    Args:
        form: Responses' ``text.format`` or Anthropic's ``output_config.format``.
        place: its name in errors.

    Raises:
        ApiError: the wrong form.
    """
    return _only({place: read_format(form)})


def read_format(form: Fields) -> Constraint | None:
    """A format by its ``type``; a schema may stand in it or in its ``json_schema``.

    Raises:
        ApiError: another type, or no schema.
    """
    kind = form.one_of("type", "text", "json_object", "json_schema")
    if kind in ("", "text"):
        return None
    holder = form
    if kind == "json_schema" and "json_schema" in form:
        if not form.has("json_schema"):
            return None  # clients that always send the field
        holder = form.object("json_schema")
    if holder.has("schema"):
        schema = holder.mapping("schema")
        if schema or kind == "json_schema":
            return _schema(schema)
    if kind == "json_object":
        return Constraint(kind="json_object")
    place = holder.where("schema")
    raise ApiError("invalid_value", f"{place} is missing", param=place)


def _native(body: Fields) -> dict[str, Constraint | None]:
    """Fields of llama.cpp."""
    found: dict[str, Constraint | None] = {}
    if body.has("json_schema"):
        found["json_schema"] = _schema(_document(body, "json_schema"))
    grammar = body.text("grammar")
    if grammar:
        found["grammar"] = _grammar(grammar)
    return found


def _vllm(fields: Fields, prefix: str) -> dict[str, Constraint | None]:
    """Fields of vLLM, in an object of their own or each with a prefix."""
    found: dict[str, Constraint | None] = {}

    def has(name: str) -> bool:
        return fields.raw(prefix + name) not in (None, "")

    def note(name: str, constraint: Constraint) -> None:
        found[fields.where(prefix + name)] = constraint

    if has("json"):
        note("json", _schema(_document(fields, f"{prefix}json")))
    if has("regex"):
        text = fields.text(f"{prefix}regex")
        note("regex", Constraint(kind="regex", text=text))
    if has("choice"):
        choices = fields.items(f"{prefix}choice")
        note("choice", Constraint(kind="choice", text=_text(choices)))
    if has("grammar"):
        note("grammar", _grammar(fields.text(f"{prefix}grammar")))
    if fields.flag(f"{prefix}json_object"):
        note("json_object", Constraint(kind="json_object"))
    return found


def _only(found: dict[str, Constraint | None]) -> Constraint | None:
    asked = {place: item for place, item in found.items() if item is not None}
    if not asked:
        return None
    place, constraint = next(iter(asked.items()))
    if len(asked) > 1:
        names = " and ".join(asked)
        raise ApiError("invalid_value", f"give only one of {names}", param=place)
    return replace(constraint, place=place)


def _document(fields: Fields, name: str) -> dict[str, Any]:
    """A JSON Schema: an object, or the text of one."""
    value = fields.raw(name)
    if not isinstance(value, str):
        return fields.mapping(name)
    try:
        read = json.loads(value)
    except (ValueError, RecursionError):
        read = None
    if not isinstance(read, dict):
        raise fields.wrong(name, "an object, or the text of one", value)
    return read


def _schema(schema: dict[str, Any]) -> Constraint:
    return Constraint(kind="json_schema", text=_text(schema))


def _grammar(text: str) -> Constraint:
    """llama.cpp's notation defines a rule by ``::=``, Lark's by a colon."""
    return Constraint(kind="gbnf" if "::=" in text else "lark", text=text)


def _text(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)
