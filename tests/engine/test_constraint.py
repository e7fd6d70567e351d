# SPDX-License-Identifier: Apache-2.0
"""Answers that follow a grammar: with drafts and without, the same."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
import tiny

from splashpy.dialogue.grammars import Grammars
from splashpy.dialogue.tokenizer import Tokenizer
from splashpy.dialogue.tools.call_grammar import CallRules, offered_tools
from splashpy.dialogue.tools.formats import named_format
from splashpy.drafting.combined import CombinedDrafter
from splashpy.drafting.dflash2 import DFlash2Drafter
from splashpy.drafting.lookup import LookupDrafter
from splashpy.drafting.plain import PlainDrafter
from splashpy.models.target import MlxLmTarget
from splashpy.protocol import Constraint
from splashpy.verification.grammar import Grammar
from splashpy.verification.sampling import SamplingParams

SCHEMA = {
    "type": "object",
    "properties": {
        "kind": {"enum": ["cat", "dog"]},
        "legs": {"type": "integer", "minimum": 0, "maximum": 99},
        "names": {"type": "array", "items": {"type": "string", "maxLength": 4}},
    },
    "required": ["kind", "legs", "names"],
    "additionalProperties": False,
}
CALLS = CallRules(
    form=named_format("qwen3_coder"),
    tools=offered_tools([{"name": "f", "parameters": SCHEMA}, {"name": "g"}]),
    said="<tool_call>\n<function=",
)
CONSTRAINTS = {
    "schema": Constraint(kind="json_schema", text=json.dumps(SCHEMA)),
    "object": Constraint(kind="json_object"),
    "regex": Constraint(kind="regex", text="(ab|cd){3,9}[0-9]*;"),
}


@pytest.fixture(scope="module")
def grammars(tmp_path_factory: pytest.TempPathFactory) -> Grammars:
    folder: Path = tmp_path_factory.mktemp("tokenizer")
    tiny.write_tokenizer(folder)
    return Grammars(Tokenizer.from_directory(folder))


@pytest.fixture
def target() -> MlxLmTarget:
    return tiny.target()


def drafters(target: MlxLmTarget) -> dict[str, CombinedDrafter | LookupDrafter]:
    networks = {
        version: DFlash2Drafter(tiny.drafter_network(version), target)
        for version in (1, 2)
    }
    target.tap(networks[2].feature_layers)
    return {
        "lookup": LookupDrafter(),
        "dflash": CombinedDrafter(None, networks[1]),
        "dflash 2": CombinedDrafter(None, networks[2]),
        "both": CombinedDrafter(LookupDrafter(), networks[2]),
    }


def bound(grammars: Grammars, name: str, token: int) -> Grammar:
    """An answer bound from its beginning, or after a token it would hold anyway."""
    if name == "calls":
        return grammars.compile_calls(CALLS)
    if name == "later calls":
        return grammars.compile_calls(CALLS, (token,))
    return grammars.compile(CONSTRAINTS[name])


@pytest.mark.parametrize("sampled", [False, True], ids=["greedy", "seeded"])
@pytest.mark.parametrize("name", [*CONSTRAINTS, "calls", "later calls"])
def test_drafts_change_no_constrained_text(
    target: MlxLmTarget, grammars: Grammars, run: Callable, name: str, sampled: bool
) -> None:
    sampling = (
        SamplingParams(temperature=0.9, top_k=40) if sampled else SamplingParams()
    )
    options = {"sampling": sampling, "seeded": sampled, "max_new_tokens": 50}
    token = run(target, PlainDrafter(), **options).tokens[5]
    options["grammar"] = bound(grammars, name, token)
    plain = run(target, PlainDrafter(), **options)
    assert bound(grammars, name, token).legal(plain.tokens) == len(plain.tokens)
    accepted = 0
    for kind, drafter in drafters(target).items():
        drafted = run(target, drafter, **options)
        assert drafted.tokens == plain.tokens, kind
        accepted += sum(event.accepted for event in drafted.cycles)
    assert accepted, "or nothing was proved"


def test_a_finished_grammar_ends_the_answer(
    target: MlxLmTarget, grammars: Grammars, run: Callable
) -> None:
    yes = grammars.compile(Constraint(kind="choice", text='["yes"]'))
    for drafter in (PlainDrafter(), LookupDrafter()):
        answer = run(target, drafter, grammar=yes, max_new_tokens=20)
        assert grammars._tokenizer.decode(answer.tokens) == "yes"
        assert answer.finished.reason == "stop"


def test_what_must_follow_costs_one_pass(
    target: MlxLmTarget, grammars: Grammars, run: Callable
) -> None:
    long = grammars.compile(Constraint(kind="choice", text='["abcdefghijklmnop"]'))
    answer = run(target, LookupDrafter(), grammar=long, max_new_tokens=20)
    assert len(answer.tokens) == 16
    assert len(answer.cycles) <= 3


def test_drawn_texts_have_the_distribution_of_plain_decoding(
    target: MlxLmTarget, grammars: Grammars, run: Callable
) -> None:
    """Two letters of four each: 16 texts, counted over seeds that are not shared."""
    grammar: Grammar = grammars.compile(Constraint(kind="regex", text="[a-d]{2}"))
    drafter = drafters(target)["dflash 2"]
    sampling = SamplingParams(temperature=1.0)
    counts: dict[str, Counter[tuple[int, ...]]] = {}
    draws = 300
    for name, each in (("plain", PlainDrafter()), ("drafted", drafter)):
        counts[name] = Counter(
            tuple(
                run(
                    target,
                    each,
                    grammar=grammar,
                    sampling=sampling,
                    seed=seed + (10_000 if name == "plain" else 0),
                    max_new_tokens=4,
                ).tokens
            )
            for seed in range(draws)
        )
    texts = set(counts["plain"]) | set(counts["drafted"])
    assert all(len(text) == 2 for text in texts)
    # Two samples of one distribution: chi-squared with at most 15 degrees of freedom
    # exceeds 37.7 once in a thousand.
    statistic = sum(
        (counts["plain"][text] - counts["drafted"][text]) ** 2
        / (counts["plain"][text] + counts["drafted"][text])
        for text in texts
    )
    assert statistic < 37.7
