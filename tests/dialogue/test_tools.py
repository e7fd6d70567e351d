# SPDX-License-Identifier: Apache-2.0
"""Tool calls read from text: every format, however the text is cut."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tools_kit import SCHEMAS, TWO_CALLS, WRITTEN, Read, hermes, qwen, read

from splashpy.dialogue.tools.formats import (
    FORMATS,
    ToolFormat,
    find_format,
    named_format,
)
from splashpy.dialogue.tools.parser import ToolCallParser


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
    assert find_format("{{ message.content }}", lambda token: token == "[") is None


@pytest.mark.parametrize("form", [form for form in FORMATS if form.tokens])
def test_control_tokens_name_the_format_where_the_template_does_not(
    form: ToolFormat,
) -> None:
    assert find_format("", form.tokens.__contains__) is form


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
    "<|open|>",
    "<|close|>",
    "<|sep|>",
    "tools",
    'call tool="f"',
    'argument key="text"',
    "json",
    "<|channel|>commentary to=",
    "functions.f",
    "<|message|>",
    "<|call|>",
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
        (
            "kimi_k3",
            '<|open|>tools<|sep|><|open|>call tool="f"<|sep|><|open|>argument '
            f'key="text" type="string"<|sep|>{text}<|close|>argument<|sep|>'
            "<|close|>call<|sep|><|close|>tools<|sep|>",
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
