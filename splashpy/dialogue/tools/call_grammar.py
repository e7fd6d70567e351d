# SPDX-License-Identifier: Apache-2.0
"""What an answer of tool calls must look like: the schemas of tools as one grammar.

The calls are those of the model's own notation. Arguments between tags come in any
order, those of a JSON object in the order of the schema. Where no schema is to be kept
the notation still is.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from splashpy.dialogue.tools.formats import ToolFormat
from splashpy.dialogue.tools.lark import LarkRules, UnwritableError
from splashpy.dialogue.tools.literal_rules import LiteralRules
from splashpy.dialogue.tools.notation import JsonObject, Literals, Tagged
from splashpy.dialogue.tools.schema import ToolSchemas, member, types_in
from splashpy.dialogue.tools.value_rules import (
    JSON_OPTIONS,
    LOOSE_OPTIONS,
    plain_shape,
    type_word,
)

Care = Literal["exact", "loose", "none"]
"""How much of a schema is kept: all; what a grammar can say; nothing."""

CARES: tuple[Care, ...] = ("exact", "loose", "none")
_KEY = re.compile(r"[^\s<>=\"']{1,128}")
_ANY_KEY = r"/[^\s<>=\"'{}\[\]:,|]{1,64}/"
_INDEX = "/[0-9]{1,3}/"
_BREAKS = r"/\n{0,2}/"


@dataclass(frozen=True, slots=True)
class OfferedTool:
    """A tool that may be called.

    Attributes:
        name: of the tool.
        parameters: its schema.
        strict: calls keep to the schema, or the request is refused.
        care: how much of the schema is kept.
    """

    name: str
    parameters: Mapping[str, Any]
    strict: bool = False
    care: Care = "exact"


@dataclass(frozen=True, slots=True, kw_only=True)
class CallRules:
    """What the calls of an answer must look like.

    Attributes:
        form: how the model writes calls.
        tools: any of which may be called.
        said: how the answer begins already.
        several: more calls may follow the first one.
        after_text: any text may come first, and there need not be a call.
    """

    form: ToolFormat
    tools: Sequence[OfferedTool]
    said: str = ""
    several: bool = True
    after_text: bool = False

    def text(
        self,
        token_id: Callable[[str], int | None],
        ends: Collection[int] = (),
        between: Collection[int] = (),
    ) -> str:
        """The grammar in Lark's notation.

        Args:
            token_id: id of a control token by its text; None for other texts.
            ends: tokens that end an answer, which no grammar has to name.
            between: control tokens that may stand in text before a call.

        Raises:
            UnwritableError: the notation has no way to write an argument.
        """
        controls = {text: token_id(text) for text in self.form.texts}
        rules = LarkRules({text: i for text, i in controls.items() if i is not None})
        frame = self.form.frame
        end, several = frame.end, self.several and bool(frame.again)
        if controls.get(end) in ends:
            end = ""
        first, later = [], []
        for tool in self.tools:
            rest = f"{_arguments(rules, self.form, tool)} {rules.said(end)}"
            head = frame.head(tool.name).removeprefix(self.said)
            first.append(rules.rule(f"{rules.said(head)} {rest}"))
            later.append(rules.rule(f"{self._later_head(rules, tool)} {rest}"))
        start = f"( {' | '.join(first)} )"
        if not self.said:
            start = f"{_BREAKS} {start}"
        if several:
            start += f" ( {rules.said(frame.again)} ( {' | '.join(later)} ) )*"
        start += f" {rules.said(frame.close)}"
        if self.after_text:
            never = tuple(filter(None, (self.said, self.form.bare)))
            others = set(between).difference(ends)
            start = rules.after_text(self.said, never, start, others)
        return rules.text(start)

    def _later_head(self, rules: LarkRules, tool: OfferedTool) -> str:
        before, numbered, after = self.form.frame.after.partition("{index}")
        between = f" {_INDEX} {rules.said(after)}" if numbered else ""
        return rules.said(tool.name + before) + between


def offered_tools(tools: Sequence[Mapping[str, Any]]) -> tuple[OfferedTool, ...]:
    """The tools of a request, OpenAI objects."""
    schemas = ToolSchemas(tools)
    strict = schemas.strict
    return tuple(
        OfferedTool(name, schemas.parameters(name), strict=name in strict)
        for name in schemas.names
    )


def _arguments(rules: LarkRules, form: ToolFormat, tool: OfferedTool) -> str:
    notation = form.frame.arguments
    if isinstance(notation, JsonObject):
        schema = tool.parameters if tool.care != "none" else {}
        return rules.schema({**schema, "type": "object"}, _options(tool))
    if isinstance(notation, Literals):
        schema = tool.parameters if tool.care != "none" else {}
        return LiteralRules(rules, notation, schema).arguments()
    return _tagged(rules, notation, tool)


def _options(tool: OfferedTool) -> Mapping[str, Any]:
    return JSON_OPTIONS if tool.care == "exact" else LOOSE_OPTIONS


def _tagged(rules: LarkRules, notation: Tagged, tool: OfferedTool) -> str:
    properties = tool.parameters.get("properties")
    if tool.care == "none" or not isinstance(properties, Mapping) or not properties:
        return _free(rules, notation, tool)
    required = tool.parameters.get("required")
    needed, others = [], []
    for key in properties:
        some = needed if isinstance(required, list) and key in required else others
        some.append(_tagged_argument(rules, notation, tool, key))
    return rules.members(needed, others)


def _free(rules: LarkRules, notation: Tagged, tool: OfferedTool) -> str:
    """Arguments nothing is known about; none where there may be none."""
    if tool.care != "none" and tool.parameters.get("additionalProperties") is False:
        return '""'
    before, _, after = notation.key.replace("{type}", "string").partition("{key}")
    value = rules.plain(notation.tail, notation.never)
    words = f"{rules.said(before)} {_ANY_KEY} {rules.said(after)} {value}"
    return f"{rules.rule(words)}*"


def _tagged_argument(
    rules: LarkRules, notation: Tagged, tool: OfferedTool, key: str
) -> str:
    if not _KEY.fullmatch(key):
        raise UnwritableError(f"{key!r} is no name of an argument here")
    root = tool.parameters
    schema = member(root, key)
    types = types_in(schema, root)
    head = notation.key.replace("{key}", key).replace("{type}", type_word(types))
    if types is None or "string" in types:
        exact, typed = tool.care == "exact", "{type}" in notation.key
        shape = plain_shape(schema, root, exact=exact, typed=typed)
        return f"{rules.said(head)} {rules.plain(notation.tail, notation.never, shape)}"
    value = rules.schema(_alone(root, key), _options(tool))
    return f"{rules.said(head)} {value} {rules.said(notation.tail)}"


def _alone(root: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    """The schema of one argument, apart from those beside it."""
    found = member(root, key)
    if "$ref" not in str(found):
        return found
    return {"$ref": f"#/$defs/all/properties/{key}", "$defs": {"all": _moved(root)}}


def _moved(node: Any) -> Any:
    """A schema whose local references are those of a schema one level up."""
    if isinstance(node, list):
        return [_moved(item) for item in node]
    if not isinstance(node, Mapping):
        return node
    moved = {key: _moved(value) for key, value in node.items()}
    reference = node.get("$ref")
    if isinstance(reference, str) and reference.startswith("#"):
        moved["$ref"] = f"#/$defs/all{reference[1:]}"
    return moved
