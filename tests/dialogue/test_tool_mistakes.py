# SPDX-License-Identifier: Apache-2.0
"""Tool calls as models get them wrong, and text that only looks like one."""

from __future__ import annotations

import json

import pytest
from tools_kit import SCHEMAS, WRITTEN, Read, qwen, read

from splashpy.dialogue.tools.events import CallArguments
from splashpy.dialogue.tools.formats import FORMATS, ToolFormat, named_format
from splashpy.dialogue.tools.notation import Tagged
from splashpy.dialogue.tools.parser import ToolCallParser


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


def test_arguments_of_control_tokens_may_be_one_object_or_lack_a_tag() -> None:
    call = '<|open|>tools<|sep|><|open|>call tool="f" index="1"<|sep|>'
    argument = '<|open|>argument key="{}" type="{}"<|sep|>{}'
    closed = "<|close|>argument<|sep|>"
    whole = '<|open|>json type="object"<|sep|>{"count": 2}<|close|>json<|sep|>'
    end = "<|close|>call<|sep|><|close|>tools<|sep|>"
    for text in (
        call + whole + end,
        call + argument.format("count", "number", "2") + closed + end,
        call + argument.format("count", "string", "2") + closed + end,
        call + argument.format("count", "number", "2") + end,
        call + argument.format("count", "number", "2") + "<|close|>argu",
    ):
        assert read(text, "kimi_k3", step=1).values == [("f", {"count": 2})], text


def test_a_value_may_hold_the_words_of_a_tag() -> None:
    value = 'a <|sep|> b <|open|>bold<|sep|> c "é'
    text = (
        '<|open|>tools<|sep|><|open|>call tool="f" index="1"<|sep|>'
        f'<|open|>argument key="text" type="string"<|sep|>{value}'
        "<|close|>argument<|sep|><|close|>call<|sep|><|close|>tools<|sep|>"
    )

    assert read(text, "kimi_k3", step=1).values == [("f", {"text": value})]


TAGGED = [form for form in FORMATS if isinstance(form.frame.arguments, Tagged)]


def tagged(form: ToolFormat, key: str, value: str) -> str:
    """One call with one argument that is JSON."""
    notation = form.frame.arguments
    assert isinstance(notation, Tagged)
    before = notation.key.replace("{key}", key).replace("{type}", "array")
    argument = before + value + notation.tail
    return form.frame.head("f") + argument + form.frame.end + form.frame.close


@pytest.mark.parametrize("form", TAGGED, ids=lambda form: form.name)
def test_strings_of_a_json_value_may_hold_any_tag(form: ToolFormat) -> None:
    notation, frame = form.frame.arguments, form.frame
    assert isinstance(notation, Tagged)
    tags = [
        notation.tail.strip(),
        frame.end,
        frame.close,
        frame.before,
        *notation.never,
    ]
    value = ['"', "\\", *tags, dict.fromkeys(tags, 1)]

    found = read(tagged(form, "items", json.dumps(value)), form.name, step=1)

    assert found.values == [("f", {"items": value})]
    assert found.content == ""


@pytest.mark.parametrize("form", TAGGED, ids=lambda form: form.name)
def test_a_string_that_is_not_closed_ends_with_its_line(form: ToolFormat) -> None:
    text = tagged(form, "items", '["x\n') + " Done."

    found = read(text, form.name, step=1)

    assert [name for name, _ in found.values] == ["f"]
    assert found.content == " Done."


@pytest.mark.parametrize(
    ("form", "text"),
    [
        ("gemma4", "<|tool_call>call:f{ratio:1e999}<tool_call|>"),
        ("pythonic", "<|tool_call_start|>[f(ratio=1e999)]<|tool_call_end|>"),
    ],
)
def test_a_number_no_float_can_be_makes_a_text(form: str, text: str) -> None:
    found = read(text, form)

    assert found.content == text
    assert found.calls == []


def test_a_call_for_a_tool_that_takes_no_json_is_text() -> None:
    text = "<|channel|>commentary to=python code<|message|>print(1)<|call|> Done."

    found = read(text, "harmony", step=1)

    assert found.content == text
    assert not any(found.complete)
