# SPDX-License-Identifier: Apache-2.0
"""Calls held to the schemas of tools, in every format."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from random import Random
from typing import Any

import jsonschema
import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st
from tools_kit import Read

from splashpy.dialogue.grammars import Grammars
from splashpy.dialogue.tokenizer import Tokenizer
from splashpy.dialogue.tools.call_grammar import CallRules, offered_tools
from splashpy.dialogue.tools.formats import FORMATS, ToolFormat, named_format
from splashpy.dialogue.tools.notation import Literals, Tagged
from splashpy.dialogue.tools.parser import ToolCallParser
from splashpy.dialogue.tools.schema import ToolSchemas
from splashpy.errors import ConstraintError
from splashpy.verification.grammar import Grammar

F: dict[str, Any] = {
    "type": "object",
    "$defs": {
        "point": {
            "type": "object",
            "properties": {"x": {"type": "integer"}, "y": {"$ref": "#/$defs/flag"}},
            "required": ["x"],
            "additionalProperties": False,
        },
        "flag": {"type": ["boolean", "null"]},
        "sizes": {"type": "array", "items": {"type": "integer"}, "maxItems": 3},
    },
    "properties": {
        "text": {"type": "string", "maxLength": 6},
        "code": {"type": "string", "pattern": "^[A-C]{2}/[0-9]$"},
        "count": {"type": "integer"},
        "ratio": {"type": "number"},
        "color": {"enum": ["red", "light blue", 7]},
        "items": {"type": "array", "items": {"type": "integer"}},
        "maybe": {"type": ["string", "null"], "maxLength": 3},
        "point": {"$ref": "#/$defs/point"},
        "words": {"type": "array", "items": {"type": "string"}, "maxItems": 2},
        "sizes": {"allOf": [{"$ref": "#/$defs/sizes"}, {"minItems": 2}]},
        "pick": {"anyOf": [{"enum": ["a", "b", None]}, {"type": "null"}]},
        "map": {"type": "object", "additionalProperties": {"$ref": "#/$defs/flag"}},
        "either": {"enum": [{"x": [1]}, {"x": []}]},
        "none": {"type": "array", "maxItems": 0},
    },
    "required": ["text", "color", "sizes", "pick"],
    "additionalProperties": False,
}
PARAMETERS: dict[str, Any] = {"f": F, "g": {}, "go": {"additionalProperties": False}}
CONTROL = [True, False]


def tool(name: str, parameters: Any, *, strict: bool = False) -> dict[str, Any]:
    function = {"name": name, "parameters": parameters, "strict": strict}
    return {"type": "function", "function": function}


TOOLS = [tool(name, parameters) for name, parameters in PARAMETERS.items()]


@pytest.fixture(scope="module")
def grammars_of(
    make_byte_definition: Callable[[], tokenizers.Tokenizer],
    write_model: Callable[..., Path],
) -> Callable[..., Grammars]:
    """One token for each byte, with a format's markers as tokens or not."""
    known: dict[tuple[str, bool], Grammars] = {}

    def make(form: ToolFormat, *, control: bool = True) -> Grammars:
        key = (form.name, control)
        if key not in known:
            definition = make_byte_definition()
            if control:
                texts = [tokenizers.AddedToken(t, normalized=False) for t in form.texts]
                definition.add_tokens(texts)
            folder = write_model(
                definition,
                " ".join(form.texts),
                tokenizer_config={"eos_token": "<|im_end|>"},
            )
            known[key] = Grammars(Tokenizer.from_directory(folder))
        return known[key]

    return make


def rules(form: ToolFormat, *names: str, **fields: Any) -> CallRules:
    tools = [
        tool for tool in TOOLS if tool["function"]["name"] in (names or PARAMETERS)
    ]
    return CallRules(form=form, tools=offered_tools(tools), **fields)


def endings(form: ToolFormat) -> list[str]:
    """What a model that writes at random hardly ever comes to."""
    frame, notation = form.frame, form.frame.arguments
    tagged = isinstance(notation, Tagged)
    tails = [notation.tail, notation.tail.strip()] if tagged else []
    quotes = [notation.quote] if isinstance(notation, Literals) else ['"']
    return [*tails, *quotes, "}", "]", frame.end + frame.close, frame.again]


def write(grammars: Grammars, grammar: Grammar, form: ToolFormat, seed: int) -> str:
    """What a model writes that knows nothing but the grammar."""
    tokenizer, chance = grammars._tokenizer, Random(seed)
    ids, written = range(tokenizer.vocab_size), []
    ends = [tokenizer.encode(text) for text in endings(form)]
    while not grammar.finished:
        end = chance.choice(ends)
        allowed = [i for i, ok in zip(ids, grammar.allows(ids), strict=True) if ok]
        if tokenizer.eos_token_ids.intersection(allowed):
            break
        step = [chance.choice(allowed)]
        if chance.random() < 0.6 and grammar.legal(end) == len(end):
            step = end
        assert grammar.consume(step) == len(step)
        written += step
        assert len(written) < 4000
    return tokenizer.decode(written, skip_special_tokens=False)


def calls_in(text: str, form: ToolFormat) -> Read:
    parser = ToolCallParser(form, ToolSchemas(TOOLS))
    found = Read()
    found.take(parser.feed(text))
    found.take(parser.finish(cut=False))
    return found


def assert_valid(calls: list[tuple[str, Any]], of: Mapping[str, Any]) -> None:
    for name, arguments in calls:
        jsonschema.validate(arguments, of[name])


@pytest.mark.parametrize("control", CONTROL, ids=["tokens", "text"])
@pytest.mark.parametrize("form", FORMATS, ids=lambda form: form.name)
def test_whatever_a_grammar_lets_through_is_read_as_calls_by_the_schema(
    grammars_of: Callable[..., Grammars], form: ToolFormat, *, control: bool
) -> None:
    grammars = grammars_of(form, control=control)
    seen = set()
    for seed in range(4):
        asked = rules(form, said=form.frame.before, several=seed % 2 == 0)
        grammar = grammars.compile_calls(asked)

        text = write(grammars, grammar, form, seed)

        found = calls_in(form.frame.before + text, form)
        assert found.content == ""
        assert found.calls
        assert all(found.complete)
        assert asked.several or len(found.calls) == 1
        assert_valid(found.values, PARAMETERS)
        seen |= {name for name, _ in found.values}
    assert len(seen) > 1


@pytest.mark.parametrize("form", FORMATS, ids=lambda form: form.name)
def test_a_named_call_begins_where_the_prompt_ends(
    grammars_of: Callable[..., Grammars], form: ToolFormat
) -> None:
    said = form.frame.head("f")
    grammars = grammars_of(form)
    grammar = grammars.compile_calls(rules(form, "f", said=said, several=False))

    text = write(grammars, grammar, form, 7)

    (call,) = calls_in(said + text, form).values
    assert call[0] == "f"
    assert_valid([call], PARAMETERS)
    assert "".join(form.frame.words("f")) == said


@pytest.mark.parametrize(
    ("arguments", "legal"),
    [
        ("<parameter=text>\nab\n</parameter>\n<parameter=color>\nred\n", True),
        ("<parameter=color>\nred\n</parameter>\n<parameter=text>\na<b>\n", True),
        ("<parameter=color>\n7\n</parameter>\n<parameter=text>\n\n\n", True),
        ("<parameter=color>\npink\n", False),
        ("<parameter=text>\nabcdefg\n", False),
        ("<parameter=count>\n1.5\n", False),
        ("<parameter=count>\n1\n</parameter>\n<parameter=count>\n", False),
        ("<parameter=size>\n1\n", False),
        ("<parameter=code>\nAB/1\n", True),
        ("<parameter=code>\nAD/1\n", False),
        ('<parameter=point>\n{"x": 1, "y": null}\n', True),
        ('<parameter=point>\n{"y": null}\n', False),
        ("</function>", False),
    ],
)
def test_arguments_in_tags_come_in_any_order_and_as_the_schema_says(
    grammars_of: Callable[..., Grammars], arguments: str, *, legal: bool
) -> None:
    form = named_format("qwen3_coder")
    grammars = grammars_of(form)
    grammar = grammars.compile_calls(rules(form, "f", said=form.frame.head("f")))

    ids = grammars._tokenizer.encode_literal(arguments)

    assert (grammar.legal(ids) == len(ids)) is legal


def test_a_call_may_be_all_that_is_bound(grammars_of: Callable[..., Grammars]) -> None:
    form = named_format("json_tools")
    grammars = grammars_of(form)
    tokenizer = grammars._tokenizer
    opener = tokenizer.id_of("<tool_call>")
    assert opener is not None
    asked = rules(form, said="<tool_call>")
    free, begun = grammars.compile_calls(asked, (opener,)), "\n{" + '"name": "g'
    before = tokenizer.encode_literal("Let me see. {")

    assert free.legal(before) == len(before)
    assert free.forced() == []
    assert not free.finished
    good, bad = (tokenizer.encode_literal(text) for text in (begun, "\n[1]"))
    assert free.legal([*before, opener, *good]) == len(before) + 1 + len(good)
    assert free.legal([*before, opener, *bad]) == len(before) + 2
    assert free.consume([*before, opener, *good[:-1]]) == len(before) + len(good)
    assert free.allows(tokenizer.encode_literal("gx")) == [True, False]


@pytest.mark.parametrize(
    ("arguments", "legal"),
    [
        ("sizes:[1,2],pick:{a},color:7,text:{x}}", True),
        ("sizes:[1,2,3]", True),
        ("sizes:[1]", False),
        ("sizes:[1,2,3,4", False),
        ("none:[]", True),
        ("none:[1", False),
        ("pick:null", True),
        ("pick:{c}", False),
        ("map:{a:true,b:null}", True),
        ("map:{a:1", False),
        ("either:{x:[1]},", True),
        ("either:{x:[2", False),
    ],
)
def test_literals_keep_to_what_a_schema_says_of_lists_and_objects(
    grammars_of: Callable[..., Grammars], arguments: str, *, legal: bool
) -> None:
    form = named_format("function_gemma")
    grammars = grammars_of(form, control=False)
    grammar = grammars.compile_calls(rules(form, "f", said=form.frame.head("f")))
    for word in "abcx":
        quote = "<escape>"
        if f":{{{word}}}" in arguments:
            arguments = arguments.replace(f"{{{word}}}", f"{quote}{word}{quote}")

    ids = grammars._tokenizer.encode_literal(arguments)

    assert (grammar.legal(ids) == len(ids)) is legal


@pytest.mark.parametrize("name", ["muse_spark", "minicpm5", "mistral"])
def test_calls_are_bound_from_where_ordinary_text_comes_to_one(
    grammars_of: Callable[..., Grammars], name: str
) -> None:
    form = named_format(name)
    grammars = grammars_of(form, control=False)
    tokenizer, opener = grammars._tokenizer, form.region[0]
    asked = rules(form, "f", "go", said=opener, after_text=True)
    end = min(tokenizer.eos_token_ids)
    start, think = (tokenizer.id_of(text) for text in ("<|im_start|>", "<think>"))
    before = [*tokenizer.encode_literal("See <x> {"), think, start]
    before += tokenizer.encode_literal("\n" + opener[:-1])
    grammar = grammars.compile_calls(asked)
    assert grammar.fork().allows([end]) == [True]

    assert grammar.consume(before) == len(before)

    assert grammar.allows([end, think or 0]) == [True, True]
    for tool, legal in (("go", True), ("gone", False)):
        rest = opener[-1] + form.frame.head(tool).removeprefix(opener)
        ids = tokenizer.encode_literal(rest)
        assert (grammar.legal(ids) == len(ids)) is legal
        assert grammar.legal([*ids[:1], end]) == 1
    whole = opener[-1] + form.frame.head("go").removeprefix(opener)
    whole += ("{}" if name == "mistral" else "") + form.frame.end + form.frame.close
    ids = tokenizer.encode_literal(whole)
    assert grammar.consume(ids) == len(ids)
    assert grammar.allows([end]) == [True]
    assert not grammar.allows(tokenizer.encode_literal("x"))[0]


def test_markers_within_a_value_are_neither_tokens_nor_text(
    grammars_of: Callable[..., Grammars],
) -> None:
    form = named_format("qwen3_coder")
    grammars = grammars_of(form)
    tokenizer = grammars._tokenizer
    grammar = grammars.compile_calls(rules(form, "f", said=form.frame.head("f")))
    marker, end = (tokenizer.id_of(t) for t in ("<tool_call>", "<|im_end|>"))

    grammar.consume(tokenizer.encode_literal("<parameter=text>\na"))

    assert grammar.allows([marker or 0, end or 0]) == [False, False]
    spelled = tokenizer.encode_literal("</function>\n")
    assert grammar.legal(spelled) < len(spelled)


SAID = ("string", "object", "array", "integer", "null", "a", "^", "[", "é", "")
KEYS = ("type", "properties", "required", "items", "enum", "const", "anyOf", "allOf")
KEYS += ("$ref", "$defs", "pattern", "minLength", "maxLength", "additionalProperties")
KEYS += ("#/$defs/a", "#/properties/a", "#", "minimum", "multipleOf", "oneOf")
KEYS += ("minItems", "maxItems")
WORDS = st.sampled_from((*SAID, *KEYS))
JUNK = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.floats(-2, 2) | WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner),
    max_leaves=12,
)


@pytest.mark.parametrize("name", ["qwen3_coder", "json_tools", "gemma4", "pythonic"])
@settings(max_examples=30)
@given(junk=JUNK, strict=st.booleans())
def test_no_schema_is_too_strange(
    grammars_of: Callable[..., Grammars], name: str, junk: Any, *, strict: bool
) -> None:
    form = named_format(name)
    offered = offered_tools([tool("odd", {"properties": junk}, strict=strict)])
    asked = CallRules(form=form, tools=offered, said=form.frame.head("odd"))
    try:
        grammar = grammars_of(form).compile_calls(asked)
    except ConstraintError:
        assert strict
    else:
        assert any(grammar.allows(range(256)))


NESTED: dict[str, Any] = {
    "type": "object",
    "$defs": {
        "union": {"anyOf": [{"$ref": "#/$defs/union"}, {"type": "string"}] * 9},
        "tree": {"properties": {f"p{n}": {"$ref": "#/$defs/tree"} for n in range(9)}},
    },
    "properties": {
        "union": {"$ref": "#/$defs/union"},
        "tree": {"$ref": "#/$defs/tree"},
    },
}


@pytest.mark.parametrize("name", ["qwen3_coder", "function_gemma"])
def test_a_schema_may_refer_to_itself_many_times(
    grammars_of: Callable[..., Grammars], name: str
) -> None:
    form = named_format(name)
    grammars, offered = grammars_of(form), offered_tools([tool("f", NESTED)])
    asked = CallRules(form=form, tools=offered, said=form.frame.head("f"))
    grammar = grammars.compile_calls(asked)
    text = {
        "qwen3_coder": '<parameter=tree>\n{"p1": {"p2": {}}}\n</parameter>\n',
        "function_gemma": "tree:{p1:{p2:{}}}",
    }[name]

    ids = grammars._tokenizer.encode_literal(text)

    assert grammar.legal(ids) == len(ids)


HARD = {"type": "object", "properties": {"a": {"$ref": "https://example.com/a"}}}
ODD = {"type": "object", "properties": {"a": {"type": "string", "format": "odd"}}}


def test_what_no_grammar_can_hold_is_left_open_unless_the_tool_is_strict(
    grammars_of: Callable[..., Grammars],
) -> None:
    form = named_format("json_tools")
    grammars = grammars_of(form)
    offered = offered_tools([*TOOLS, tool("odd", ODD, strict=True), tool("hard", HARD)])
    begun = CallRules(form=form, tools=offered, said=form.frame.before)
    grammar = grammars.compile_calls(begun)

    for name, arguments in (("hard", {"b": [1]}), ("odd", {"a": "x"})):
        text = f'{name}", "arguments": {json.dumps(arguments)}}}'
        ids = grammars._tokenizer.encode_literal(text)
        assert grammar.legal(ids) == len(ids)

    strict = offered_tools([tool("hard", HARD, strict=True)])
    with pytest.raises(ConstraintError, match="hard") as caught:
        grammars.compile_calls(CallRules(form=form, tools=strict))
    assert "example.com" in caught.value.why
