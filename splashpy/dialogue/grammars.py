# SPDX-License-Identifier: Apache-2.0
"""What an answer must look like, compiled for one model's tokens.

JSON Schemas, regular expressions, lists of choices, and grammars in Lark's or
llama.cpp's notation become one kind of matcher. The vocabulary is read once, at the
first grammar; compiled grammars are kept, since editors and agents send the same ones
again and again.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

from splashpy.dialogue.tokenizer import Tokenizer
from splashpy.dialogue.tools.call_grammar import CARES, CallRules, OfferedTool
from splashpy.dialogue.tools.lark import UnwritableError
from splashpy.dialogue.tools.value_rules import JSON_OPTIONS, LOOSE_OPTIONS
from splashpy.errors import ConstraintError
from splashpy.protocol import Constraint
from splashpy.verification.grammar import Grammar

if TYPE_CHECKING:
    from llguidance import LLMatcher, LLTokenizer

LONGEST = 1 << 20  # characters of one source
_KEPT = 32  # compiled grammars
_LONGEST_REASON = 300  # characters; the library may quote the whole source

_FORMATS: dict[str, Literal["regex", "choice", "lark", "gbnf"]] = {
    "regex": "regex",
    "choice": "choice",
    "lark": "lark",
    "gbnf": "gbnf",
}


class Grammars:
    """Compiles constraints.

    Args:
        tokenizer: of the model.
    """

    def __init__(self, tokenizer: Tokenizer):
        self._tokenizer = tokenizer
        self._vocabulary: LLTokenizer | None = None
        self._compiled: OrderedDict[Constraint, LLMatcher] = OrderedDict()

    def compile(
        self,
        constraint: Constraint,
        after: Sequence[int] = (),
        instead: int | None = None,
        calls: CallRules | None = None,
    ) -> Grammar:
        """The beginning of an answer under a constraint.

        Args:
            constraint: what the answer must look like.
            after: tokens that come before it.
            instead: a token the answer may begin with, to go on otherwise.
            calls: how it goes on; None: freely.

        Raises:
            ConstraintError: it is not understood, too long or too complex.
        """
        following = self._matcher_of_calls(calls) if calls is not None else None
        matcher = self._kept(constraint)
        vocab_size = self._tokenizer.vocab_size
        return Grammar(matcher, vocab_size, after, instead, following)

    def compile_calls(self, calls: CallRules, after: Sequence[int] = ()) -> Grammar:
        """The beginning of an answer, or of its end, that consists of calls.

        Args:
            calls: what they must look like.
            after: tokens that come before them.

        Raises:
            ConstraintError: the schema of a strict tool cannot be kept.
        """
        matcher = self._matcher_of_calls(calls)
        return Grammar(matcher, self._tokenizer.vocab_size, after)

    def _kept(self, constraint: Constraint) -> LLMatcher:
        """A matcher at its beginning, compiled the first time."""
        matcher = self._compiled.pop(constraint, None) or self._matcher(constraint)
        self._compiled[constraint] = matcher
        if len(self._compiled) > _KEPT:
            self._compiled.popitem(last=False)
        return matcher.deep_copy()

    def _matcher_of_calls(self, calls: CallRules) -> LLMatcher:
        """With as much of every schema as a grammar can hold."""
        try:
            return self._kept(self._written(calls))
        except (ConstraintError, UnwritableError):
            tools = tuple(self._careful(calls, tool) for tool in calls.tools)
        return self._kept(self._written(replace(calls, tools=tools)))

    def _careful(self, calls: CallRules, tool: OfferedTool) -> OfferedTool:
        """A tool with the care its schema can be given."""
        why = ""
        for care in CARES[:2] if tool.strict else CARES:
            found = replace(tool, care=care)
            try:
                self._matcher(self._written(replace(calls, tools=(found,))))
            except (ConstraintError, UnwritableError) as error:
                why = why or getattr(error, "why", "") or str(error)
            else:
                return found
        raise ConstraintError(
            f"calls of {tool.name} cannot be held to its parameters",
            why=why,
            fix=["simplify them", 'set "strict" to false'],
        )

    def _written(self, calls: CallRules) -> Constraint:
        tokenizer = self._tokenizer
        text = calls.text(
            tokenizer.control_id, tokenizer.eos_token_ids, tokenizer.control_ids
        )
        return Constraint(kind="lark", text=text)

    def _matcher(self, constraint: Constraint) -> LLMatcher:
        from llguidance import LLMatcher  # noqa: PLC0415 - few answers need it

        vocabulary = self._read_vocabulary()
        matcher = LLMatcher(vocabulary, _definition(constraint), log_level=0)
        if matcher.is_error() and constraint.kind == "json_schema":
            # What no grammar can say is left to whoever looks at the whole answer.
            loose = _definition(constraint, loose=True)
            matcher = LLMatcher(vocabulary, loose, log_level=0)
        if matcher.is_error():
            raise _refused(constraint, matcher.get_error())
        return matcher

    def _read_vocabulary(self) -> LLTokenizer:
        from llguidance import LLTokenizer  # noqa: PLC0415

        if self._vocabulary is None:
            self._vocabulary = LLTokenizer(
                self._tokenizer.definition(),
                n_vocab=self._tokenizer.vocab_size,
                eos_token=sorted(self._tokenizer.eos_token_ids),
                slices=LLTokenizer.json_slices(),
            )
        return self._vocabulary


def _definition(constraint: Constraint, *, loose: bool = False) -> str:
    from llguidance import LLMatcher, grammar_from  # noqa: PLC0415

    text = constraint.text
    if len(text) > LONGEST:
        raise _refused(
            constraint, f"{len(text):,} characters; at most {LONGEST:,} are read"
        )
    try:
        if constraint.kind in ("json_object", "json_schema"):
            schema = '{"type": "object"}' if constraint.kind == "json_object" else text
            json.loads(schema)
            choices: Any = LOOSE_OPTIONS if loose else JSON_OPTIONS
            return LLMatcher.grammar_from_json_schema(schema, defaults=choices)
        if constraint.kind == "choice":
            _check_choices(json.loads(text))
        return grammar_from(_FORMATS[constraint.kind], text)
    except (ValueError, AssertionError, KeyError, RecursionError) as error:
        raise _refused(constraint, str(error)) from None


def _check_choices(choices: Any) -> None:
    some = isinstance(choices, list) and choices
    if not some or not all(isinstance(each, str) for each in choices):
        raise ValueError("expected a JSON list of one or more strings")


def _refused(constraint: Constraint, why: str) -> ConstraintError:
    name = constraint.kind.replace("_", " ").replace("json", "JSON")
    return ConstraintError(
        f"the {name} for the answer cannot be used",
        why=" ".join(why.split())[:_LONGEST_REASON] or "it is not understood",
        fix=["correct or simplify it"],
    )
