# SPDX-License-Identifier: Apache-2.0
"""Tool calls read from text: every format, every cut, every mistake models make."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from splashpy.dialogue.tools.events import (
    CallArguments,
    CallEnd,
    CallStart,
    Markup,
    Prose,
    ToolEvent,
)
from splashpy.dialogue.tools.formats import FORMATS, find_format, named_format
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


# --- one call as each family writes it ----------------------------------------------

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
    "json_tools": hermes("f", {"text": "a b", "count": 3}) + "\n" + hermes("g", {}),
}
TWO_CALLS = [("f", {"text": "a b", "count": 3}), ("g", {})]


def test_every_format_has_a_sample() -> None:
    assert set(WRITTEN) == {form.name for form in FORMATS}


@pytest.mark.parametrize("form", WRITTEN)
@pytest.mark.parametrize("step", [0, 1, 7])
def test_each_family_s_calls_are_read(form: str, step: int) -> None:
    found = read(f"Let me look.\n\n{WRITTEN[form]}\n", form, step=step)

    assert found.values == TWO_CALLS
    assert found.content == "Let me look."


@pytest.mark.parametrize("form", WRITTEN)
def test_a_template_that_writes_calls_names_its_format(form: str) -> None:
    known = named_format(form)

    found = find_format("{{ bos }} ... " + " … ".join(known.marks))

    assert found is known


def test_a_template_without_markers_has_no_format() -> None:
    assert find_format("{{ message.content }}") is None


@pytest.mark.parametrize("form", WRITTEN)
@settings(max_examples=20)
@given(data=st.data())
def test_how_the_text_is_cut_changes_nothing(form: str, data: st.DataObject) -> None:
    text = f"Look: {WRITTEN[form]}\nand {WRITTEN[form]} done <tool_call"
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=12)))
    parser = ToolCallParser(named_format(form), SCHEMAS)
    found = Read()
    for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True):
        found.take(parser.feed(text[start:end]))
    found.take(parser.finish(cut=False))

    assert found == read(text, form)


@pytest.mark.parametrize("form", WRITTEN)
def test_a_text_cut_anywhere_is_never_lost_and_never_raises(form: str) -> None:
    text = f"So. {WRITTEN[form]}"
    for end in range(len("So. "), len(text)):
        found = read(text[:end], form, cut=end % 2 == 0)
        if not any(found.complete):
            assert found.content == text[:end]


MARKS = (
    "<tool_call>",
    "</tool_call>",
    "<function=f>",
    "</function>",
    "<parameter=text>",
    "<parameter=bad key>",
    "</parameter>",
    "<arg_key>",
    "</arg_key>",
    "<arg_value>",
    "</arg_value>",
    "[TOOL_CALLS]",
    "[ARGS]",
    '<function name="f">',
    '<param name="text">',
    "</param>",
    "<|tool_call>",
    "<tool_call|>",
    "<|tool_call_start|>",
    "<|tool_call_end|>",
    "<|tool_calls_section_begin|>",
    "<|tool_call_begin|>",
    "<|tool_call_argument_begin|>",
    '{"name": "f", "arguments": ',
    '{"text": "a',
    "call:f{",
    "[f(text=",
    "```\n",
    "\\ud83d",
    '"}',
    "}}",
    "'",
    "\n",
    " ",
    "é🙂",
    "<",
)


@pytest.mark.parametrize("form", WRITTEN)
@settings(max_examples=40)
@given(
    parts=st.lists(st.sampled_from(MARKS) | st.text(max_size=4), max_size=14),
    cut=st.booleans(),
)
def test_whatever_a_model_writes_is_read_the_same_way_in_any_pieces(
    form: str, parts: list[str], cut: bool
) -> None:
    text = "".join(parts)

    found = read(text, form, cut=cut)

    assert found == read(text, form, cut=cut, step=1)
    for _, arguments in found.values:
        assert isinstance(arguments, dict)
    if not found.calls:
        assert found.content == text


TEXTS = st.text(
    st.sampled_from("ab<>/=\"'\\{}[]\n\t é🙂日\u200d") | st.characters(codec="utf-8"),
    max_size=30,
)


@given(text=TEXTS)
def test_any_string_survives_every_format_that_can_write_it(text: str) -> None:
    assert read(hermes("f", {"text": text}), "json_tools", step=3).values == [
        ("f", {"text": text})
    ]
    for form, call in (
        ("qwen3_coder", qwen("f", text=text)),
        (
            "muse_spark",
            '<atem:function_calls><atem:invoke name="f"><atem:parameter name="text">'
            f"{text}</atem:parameter></atem:invoke></atem:function_calls>",
        ),
    ):
        if "</" not in text and "<parameter" not in text:
            assert read(call, form, step=2).values == [("f", {"text": text})]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(max_size=4), inner, max_size=3)
    ),
    max_leaves=8,
)


@settings(max_examples=50)
@given(arguments=st.dictionaries(st.text(min_size=1, max_size=6), JSON, max_size=4))
def test_json_arguments_come_out_as_they_went_in(arguments: dict[str, Any]) -> None:
    call = hermes("unknown", arguments)

    assert read(call, "json_tools", step=1).values == [("unknown", arguments)]


# --- values in the type the schema asks for ------------------------------------------


@pytest.mark.parametrize(
    ("key", "text", "value"),
    [
        ("text", "2025-06-15T10:30:00Z", "2025-06-15T10:30:00Z"),
        ("text", "null", "null"),
        ("text", "3.10", "3.10"),
        ("text", '{"a": 1}', '{"a": 1}'),
        ("text", "", ""),
        ("text", "\n two\n\nlines \n", "\n two\n\nlines \n"),
        ("count", "1.0", 1),
        ("count", "7", 7),
        ("count", "many", "many"),
        ("ratio", "2", 2),
        ("ratio", "2.5", 2.5),
        ("flag", "True", True),
        ("flag", "false", False),
        ("items", "[1, 'two', None]", [1, "two", None]),
        ("map", '{"a": {"b": [1.50]}}', {"a": {"b": [1.5]}}),
        ("map", '{"a": "line\nbreak"}', {"a": "line\nbreak"}),
        ("maybe", "null", "null"),
        ("either", "5", 5),
        ("either", "five", "five"),
        ("color", "red", "red"),
        ("point", '{"x": 1}', {"x": 1}),
        ("unknown", "version 3.10.5-beta", "version 3.10.5-beta"),
        ("unknown", "3.10.5-beta", "3.10.5-beta"),
        ("unknown", "2025-06-15T10:30:00Z", "2025-06-15T10:30:00Z"),
        ("unknown", "12", 12),
        ("unknown", "[1, 2]", [1, 2]),
        ("unknown", "true", True),
        ("unknown", "True", "True"),
        ("unknown", " 12", " 12"),
    ],
)
def test_a_written_value_takes_the_type_of_its_schema(
    key: str, text: str, value: Any
) -> None:
    found = read(qwen("f", **{key: text}), step=1)

    assert found.values == [("f", {key: value})]
    assert type(found.values[0][1][key]) is type(value)


@pytest.mark.parametrize(
    ("key", "written", "value"),
    [
        ("count", "1.0", 1),
        ("count", '"12"', 12),
        ("count", '"1.0"', 1),
        ("count", '"twelve"', "twelve"),
        ("text", "3.10", "3.10"),
        ("text", "null", None),
        ("flag", '"true"', True),
        ("flag", "True", True),
        ("map", '"{\\"a\\": 1}"', {"a": 1}),
        ("text", '"line\nbreak\tand tab"', "line\nbreak\tand tab"),
        ("text", "'it\\'s \"so\"'", 'it\'s "so"'),
        ("text", '"\\ud83d\\ude42"', "🙂"),
        ("text", '"lone \\ud83d!"', "lone \ufffd!"),
        ("text", '"C:\\work"', "C:\\work"),
        ("unknown", "1e400", "1e400"),
    ],
)
def test_a_json_value_takes_the_type_of_its_schema(
    key: str, written: str, value: Any
) -> None:
    text = '<tool_call>{"name": "f", "arguments": {"%s": %s}}</tool_call>'
    found = read(text % (key, written), "json_tools", step=1)

    if written == "1e400":
        assert found.calls == [("f", '{"unknown":1e400}')]
        return
    assert found.values == [("f", {key: value})]
    assert type(found.values[0][1][key]) is type(value)


# --- mistakes models make -------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "<tool_call>\n<function=f>\n<parameter=text>\nx\n<parameter=count>\n1\n"
        "</parameter>\n</function>\n</tool_call>",
        "<tool_call>\n<function=f>\n<parameter=text>\nx\n</parameter>\n"
        "<parameter=count>\n1\n</function>\n</tool_call>",
        "<tool_call>\n<function=f>\n<parameter=text>\nx\n</parameter>\n"
        "<parameter=count>\n1\n</tool_call>",
        "<tool_call>\n<function=f>\n<parameter=text>\nx\n</parameter>\n"
        "<parameter=count>\n1\n</parameter>\n",
        "<tool_call>\n<function=f>\n<parameter=text>\nx\n</parameter>\n"
        "<parameter=count>\n1",
        "<function=f>\n<parameter=text>\nx\n</parameter>\n<parameter=count>\n1\n"
        "</parameter>\n</function>",
        "<tool_call>\n<function=f>\n<parameter=te xt>\nlost\n</parameter>\n"
        "<parameter=text>\nx\n</parameter>\n<parameter=count>\n1\n</parameter>\n"
        "</function>\n</tool_call>",
        '<tool_call>\n{"name": "f", "arguments": {"text": "x", "count": 1}}\n'
        "</tool_call>",
    ],
    ids=[
        "argument not closed",
        "last argument not closed",
        "function not closed",
        "call not closed",
        "ends in a value",
        "no opening marker",
        "malformed key",
        "JSON in a family of tags",
    ],
)
def test_a_call_with_a_forgotten_tag_is_read(text: str) -> None:
    for step in (0, 1):
        found = read(text, step=step)
        assert found.values == [("f", {"text": "x", "count": 1})]
        assert found.content == ""


def test_tags_are_read_where_json_is_the_custom() -> None:
    assert read(qwen("f", count="2"), "json_tools").values == [("f", {"count": 2})]


def test_the_next_call_ends_one_that_was_not_closed() -> None:
    text = "<tool_call>\n<function=f>\n<parameter=count>\n1\n" + qwen("g")

    assert read(text).values == [("f", {"count": 1}), ("g", {})]


def test_the_first_of_two_equal_keys_counts_as_it_was_sent_already() -> None:
    text = qwen("f", count="1").replace(
        "</function>", "<parameter=count>\n2\n</parameter>\n</function>"
    )

    assert read(text).values == [("f", {"count": 1})]


def test_an_unknown_tool_is_called_anyway() -> None:
    assert read(qwen("unheard_of", a="1")).values == [("unheard_of", {"a": 1})]


@pytest.mark.parametrize(
    "text",
    [
        "see\n```\n<function=f>\n</function>\n``` there",
        "inline <function=f></function>",
        "<function=undeclared>\n</function>",
        "a <tool_call> in a sentence, and that is all",
        "<tool_call>\nhello\n</tool_call>",
        "<tool_call></tool_call>",
        '<tool_call>{"nom": "f"}</tool_call>',
        '<tool_call>{"name": "f", "arguments": [1]}</tool_call>',
        "1 < 2 and <b>bold</b>\n\n",
        "  \n",
        "",
    ],
)
def test_text_that_is_no_call_stays_text(text: str) -> None:
    for step in (0, 1):
        found = read(text, step=step)
        assert found.content == text
        assert not any(found.complete)


def test_a_call_whose_json_breaks_is_given_back_as_text() -> None:
    text = '<tool_call>{"name": "f", "arguments": {"text": "x"</tool_call> sorry'

    found = read(text, "json_tools", step=1)

    assert found.complete == [False]
    assert found.content == text


def test_a_json_call_without_its_closing_marker_is_whole_when_its_json_is() -> None:
    whole = '<tool_call>{"name": "f", "arguments": {"count": 1}}'

    assert read(whole, "json_tools", cut=True).values == [("f", {"count": 1})]
    assert read(whole[:-1], "json_tools", cut=False).content == whole[:-1]


def test_a_call_cut_by_the_budget_is_not_whole() -> None:
    text = "<tool_call>\n<function=f>\n<parameter=text>\nrm -rf /tmp"

    found = read(text, cut=True)

    assert found.complete == [False]
    assert found.content == text


def test_what_follows_a_whole_call_is_kept() -> None:
    text = f"First.\n{qwen('g')}\n\nThen this.\n"

    found = read(text, step=1)

    assert found.values == [("g", {})]
    assert found.content == "First.\n\nThen this.\n"


def test_an_argument_is_passed_on_before_it_is_complete() -> None:
    parser = ToolCallParser(named_format("qwen3_coder"), SCHEMAS)
    parser.feed("<tool_call>\n<function=f>\n<parameter=text>\n")

    events = parser.feed("a long text")

    assert CallArguments(0, "a long text") in events


def test_a_marker_that_is_a_token_is_told_from_the_same_characters() -> None:
    parser = ToolCallParser(named_format("qwen3_coder"), SCHEMAS, by_token=True)
    found = Read()
    found.take(parser.feed("write <tool_call> like this: "))
    found.take(parser.marker("<tool_call>"))
    found.take(parser.feed("\n<function=g>\n</function>\n"))
    found.take(parser.marker("</tool_call>"))
    found.take(parser.finish(cut=False))

    assert found.content == "write <tool_call> like this:"
    assert found.values == [("g", {})]


def test_the_id_a_model_wrote_is_kept() -> None:
    assert read(WRITTEN["kimi_k2"], "kimi_k2").ids == ["functions.f:0", "functions.g:1"]


def test_a_json_call_may_come_in_any_order_or_in_the_shape_of_the_api() -> None:
    swapped = '<tool_call>{"arguments": {"count": 2}, "name": "f"}</tool_call>'
    nested = (
        '<tool_call>{"type": "function", "function": {"name": "f", "arguments": '
        '"{\\"count\\": 2}"}}</tool_call>'
    )
    listed = '<tool_call>[{"name": "f", "parameters": {"count": 2}}]</tool_call>'
    for text in (swapped, nested, listed):
        assert read(text, "json_tools", step=1).values == [("f", {"count": 2})]
