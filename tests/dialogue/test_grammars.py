# SPDX-License-Identifier: Apache-2.0
"""Constraints as matchers over a model's own tokens."""

from __future__ import annotations

import json
import string

import mlx.core as mx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from splashpy.dialogue.grammars import LONGEST, Grammars
from splashpy.dialogue.tokenizer import Tokenizer
from splashpy.errors import ConstraintError
from splashpy.protocol import Constraint
from splashpy.verification.grammar import Grammar, restrict

SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "age": {"type": "integer"}},
    "required": ["name", "age"],
    "additionalProperties": False,
}
DIGITS = Constraint(kind="regex", text="[0-9]{2,4}!")


@pytest.fixture(scope="module")
def grammars(byte_tokenizer: Tokenizer) -> Grammars:
    return Grammars(byte_tokenizer)


def ids(tokenizer: Tokenizer, text: str) -> list[int]:
    return list(tokenizer.encode_literal(text))


@pytest.mark.parametrize(
    ("constraint", "good", "bad"),
    [
        (Constraint(kind="json_object"), '{"a": [1, null]}', "[1]"),
        (
            Constraint(kind="json_schema", text=json.dumps(SCHEMA)),
            '{"name": "Ada", "age": 36}',
            '{"age": 36}',
        ),
        (DIGITS, "123!", "1!"),
        (Constraint(kind="choice", text='["red", "green"]'), "green", "grey"),
        (Constraint(kind="lark", text='start: "a"+ "b"'), "aaab", "ba"),
        (Constraint(kind="gbnf", text='root ::= "x" [0-9]* "y"'), "x12y", "xy1"),
    ],
    ids=lambda each: each.kind if isinstance(each, Constraint) else None,
)
def test_a_text_is_taken_to_its_end_or_refused_where_it_goes_wrong(
    grammars: Grammars,
    byte_tokenizer: Tokenizer,
    constraint: Constraint,
    good: str,
    bad: str,
) -> None:
    grammar = grammars.compile(constraint)
    assert grammar.legal(ids(byte_tokenizer, good)) == len(good)
    assert grammar.legal(ids(byte_tokenizer, bad)) < len(bad)
    assert grammar.consume(ids(byte_tokenizer, good)) == len(good)
    end = sorted(byte_tokenizer.eos_token_ids)
    assert grammar.finished or all(grammar.allows(end))


@pytest.mark.parametrize(
    ("constraint", "why"),
    [
        (Constraint(kind="json_schema", text="{"), "Expecting"),
        (Constraint(kind="json_schema", text='{"type": "nothing"}'), "nothing"),
        (Constraint(kind="regex", text="["), "unclosed"),
        (Constraint(kind="choice", text="red"), "Expecting"),
        (Constraint(kind="choice", text="{}"), "list"),
        (Constraint(kind="lark", text="start: nowhere"), "nowhere"),
        (Constraint(kind="gbnf", text="root = 1"), ""),
        (Constraint(kind="regex", text="a" * (LONGEST + 1)), "at most"),
    ],
    ids=lambda each: each.kind if isinstance(each, Constraint) else None,
)
def test_what_cannot_be_used_is_refused_with_a_reason(
    grammars: Grammars, constraint: Constraint, why: str
) -> None:
    with pytest.raises(ConstraintError, match="cannot be used") as caught:
        grammars.compile(constraint)
    assert why in caught.value.why
    assert caught.value.why


@given(drafts=st.text("0123456789!x", max_size=7))
def test_every_row_allows_exactly_what_may_follow_its_prefix(
    grammars: Grammars, byte_tokenizer: Tokenizer, drafts: str
) -> None:
    grammar = grammars.compile(DIGITS)
    tokens = ids(byte_tokenizer, drafts)
    rows = grammar.masks(tokens)
    assert rows.shape[0] == len(tokens) + 1
    good = 0
    while good < len(tokens) and "!" not in drafts[:good]:
        good += 1 if grammar.legal(tokens[: good + 1]) > good else len(tokens)
    for row in range(min(good, len(tokens)) + 1):
        if "!" in drafts[:row] or grammar.legal(tokens[:row]) < row:
            break
        allowed = {
            each
            for each in string.printable
            if grammar.legal([*tokens[:row], *ids(byte_tokenizer, each)]) == row + 1
        }
        bits = np.unpackbits(rows[row].view(np.uint8), bitorder="little")
        told = {each for each in string.printable if bits[ids(byte_tokenizer, each)[0]]}
        assert told == allowed
    assert grammar.legal(tokens) == grammars.compile(DIGITS).legal(tokens), "unchanged"


def test_reasoning_is_free_and_the_answer_is_not(
    grammars: Grammars, byte_tokenizer: Tokenizer
) -> None:
    close = byte_tokenizer.id_of("</think>")
    assert close is not None
    grammar = grammars.compile(DIGITS, (close,))
    thought = ids(byte_tokenizer, "so: abc")
    assert grammar.legal(thought) == len(thought)
    rows = grammar.masks([*thought, close, *ids(byte_tokenizer, "12")])
    assert (rows[: len(thought) + 1] == -1).all()
    assert not (rows[len(thought) + 1] == -1).any()
    assert grammar.forced() == []
    assert grammar.consume([*thought, close]) == len(thought) + 1
    assert grammar.allows(ids(byte_tokenizer, "1x")) == [True, False]


def test_what_must_follow_is_known(
    grammars: Grammars, byte_tokenizer: Tokenizer
) -> None:
    grammar = grammars.compile(Constraint(kind="regex", text="(yes|no) indeed"))
    assert grammar.forced() == []
    grammar.consume(ids(byte_tokenizer, "n"))
    assert byte_tokenizer.decode(grammar.forced()) == "o indeed"


def test_the_same_constraint_is_compiled_once(grammars: Grammars) -> None:
    first, second = grammars.compile(DIGITS), grammars.compile(DIGITS)
    first.consume([0])
    assert second.legal([0]) == grammars.compile(DIGITS).legal([0])


def test_tokens_beyond_the_vocabulary_are_never_allowed(grammars: Grammars) -> None:
    grammar: Grammar = grammars.compile(Constraint(kind="json_object"))
    logits = mx.zeros((1, 5000))
    allowed = restrict(logits, grammar.masks([]))[0] == 0
    assert 0 < allowed.sum().item() < 10
    assert not mx.any(allowed[300:]).item()
