# SPDX-License-Identifier: Apache-2.0
"""Tools to call, calls as models write them, and what a parser makes of a text."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from splashpy.dialogue.tools.events import (
    CallArguments,
    CallEnd,
    CallStart,
    Markup,
    Prose,
    ToolEvent,
)
from splashpy.dialogue.tools.formats import named_format
from splashpy.dialogue.tools.parser import ToolCallParser
from splashpy.dialogue.tools.schema import ToolSchemas


def tool(name: str, **properties: Any) -> dict[str, Any]:
    parameters = {"type": "object", "properties": properties}
    return {"type": "function", "function": {"name": name, "parameters": parameters}}


TOOLS = (
    tool(
        "f",
        text={"type": "string"},
        count={"type": "integer"},
        ratio={"type": "number"},
        flag={"type": "boolean"},
        items={"type": "array"},
        map={"type": "object"},
        maybe={"type": ["string", "null"]},
        either={"anyOf": [{"type": "string"}, {"type": "integer"}]},
        color={"enum": ["red", "green"]},
        point={"$ref": "#/$defs/point"},
    ),
    tool("g"),
)
TOOLS[0]["function"]["parameters"]["$defs"] = {"point": {"type": "object"}}
SCHEMAS = ToolSchemas(TOOLS)


@dataclass
class Read:
    """What a parser made of a text."""

    content: str = ""
    markup: str = ""
    calls: list[tuple[str, str]] = field(default_factory=list)
    complete: list[bool] = field(default_factory=list)
    ids: list[str] = field(default_factory=list)

    def take(self, events: Sequence[ToolEvent]) -> None:
        for event in events:
            if isinstance(event, Prose):
                self.content += event.text
            elif isinstance(event, Markup):
                self.markup += event.text
            elif isinstance(event, CallStart):
                assert event.index == len(self.calls)
                self.calls.append((event.name, ""))
                self.ids.append(event.call_id)
            elif isinstance(event, CallArguments):
                assert event.index == len(self.calls) - 1
                name, text = self.calls[-1]
                self.calls[-1] = (name, text + event.text)
            elif isinstance(event, CallEnd):
                self.complete.append(event.complete)

    @property
    def values(self) -> list[tuple[str, Any]]:
        whole = zip(self.calls, self.complete, strict=True)
        return [(name, json.loads(text)) for (name, text), ok in whole if ok]


def read(
    text: str, form: str = "qwen3_coder", *, cut: bool = False, step: int = 0
) -> Read:
    parser = ToolCallParser(named_format(form), SCHEMAS)
    found = Read()
    size = step or max(len(text), 1)
    for at in range(0, len(text), size):
        found.take(parser.feed(text[at : at + size]))
    found.take(parser.finish(cut=cut))
    assert parser.calls == sum(found.complete)
    return found


def qwen(name: str, **arguments: str) -> str:
    inner = "".join(
        f"<parameter={key}>\n{value}\n</parameter>\n"
        for key, value in arguments.items()
    )
    return f"<tool_call>\n<function={name}>\n{inner}</function>\n</tool_call>"


def hermes(name: str, arguments: dict[str, Any]) -> str:
    call = json.dumps({"name": name, "arguments": arguments})
    return f"<tool_call>\n{call}\n</tool_call>"


WRITTEN = {
    "minimax_m2": (
        '<minimax:tool_call>\n<invoke name="f">\n<parameter name="text">a b</parameter>'
        '\n<parameter name=count>3</parameter>\n</invoke>\n<invoke name="g">\n</invoke>'
        "\n</minimax:tool_call>"
    ),
    "gemma4": (
        '<|tool_call>call:f{text:<|"|>a b<|"|>,count:3}<tool_call|>'
        "<|tool_call>call:g{}<tool_call|>"
    ),
    "function_gemma": (
        "<start_function_call>call:f{text:<escape>a b<escape>,count:3}"
        "<end_function_call><start_function_call>call:g{}<end_function_call>"
    ),
    "longcat": (
        "<longcat_tool_call>f\n<longcat_arg_key>text</longcat_arg_key>\n"
        "<longcat_arg_value>a b</longcat_arg_value>\n<longcat_arg_key>count"
        "</longcat_arg_key>\n<longcat_arg_value>3</longcat_arg_value>\n"
        "</longcat_tool_call>\n<longcat_tool_call>g</longcat_tool_call>"
    ),
    "glm47": (
        "<tool_call>f\n<arg_key>text</arg_key>\n<arg_value>a b</arg_value>\n"
        "<arg_key>count</arg_key>\n<arg_value>3</arg_value>\n</tool_call>\n"
        "<tool_call>g</tool_call>"
    ),
    "pythonic": '<|tool_call_start|>[f(text="a b", count=3), g()]<|tool_call_end|>',
    "qwen3_coder": qwen("f", text="a b", count="3") + "\n" + qwen("g"),
    "kimi_k2": (
        "<|tool_calls_section_begin|><|tool_call_begin|>functions.f:0"
        '<|tool_call_argument_begin|>{"text": "a b", "count": 3}<|tool_call_end|>'
        "<|tool_call_begin|>functions.g:1<|tool_call_argument_begin|>{}"
        "<|tool_call_end|><|tool_calls_section_end|>"
    ),
    "minicpm5": (
        '<function name="f"><param name="text"><![CDATA[a b]]></param>'
        '<param name="count">3</param></function>\n<function name="g"></function>'
    ),
    "mistral": '[TOOL_CALLS]f[ARGS]{"text": "a b", "count": 3}[TOOL_CALLS]g[ARGS]{}',
    "muse_spark": (
        '<atem:function_calls>\n<atem:invoke name="f">\n<atem:parameter name="text">'
        'a b</atem:parameter>\n<atem:parameter name="count">3</atem:parameter>\n'
        '</atem:invoke>\n<atem:invoke name="g">\n</atem:invoke>\n'
        "</atem:function_calls>"
    ),
    "kimi_k3": (
        '<|open|>tools<|sep|><|open|>call tool="f" index="1"<|sep|>'
        '<|open|>argument key="text" type="string"<|sep|>a b<|close|>argument<|sep|>'
        '<|open|>argument key="count" type="number"<|sep|>3<|close|>argument<|sep|>'
        '<|close|>call<|sep|><|open|>call tool="g" index="2"<|sep|><|close|>call<|sep|>'
        "<|close|>tools<|sep|>"
    ),
    "harmony": (
        "<|channel|>commentary to=functions.f <|constrain|>json<|message|>"
        '{"text": "a b", "count": 3}<|call|>'
        "<|channel|>commentary to=functions.g<|message|>{}<|call|>"
    ),
    "json_tools": hermes("f", {"text": "a b", "count": 3}) + "\n" + hermes("g", {}),
}
TWO_CALLS = [("f", {"text": "a b", "count": 3}), ("g", {})]
