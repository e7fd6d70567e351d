# SPDX-License-Identifier: Apache-2.0
"""Measure the demo pair on the twelve quick prompts at temperature 0.

Acceptance lengths count the target's own token (1 is plain decoding) and are taken
while everything is drafted: by the drafter alone, and by drafter and lookup. Speed is
that of the default settings, which draft where it pays, against plain decoding in the
same engine, measured as ``splashpy bench`` does; a round is two of its trials. Every
text must be the one plain decoding writes, near-ties aside.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from statistics import fmean
from typing import Any

import measure
from demo_pair import open_demo

from splashpy.bench.bench import Bench
from splashpy.bench.document import key, speedup_of
from splashpy.bench.leg import Leg
from splashpy.bench.lossless import explain
from splashpy.bench.measuring import measure as answer
from splashpy.bench.session import Session
from splashpy.bench.statistics import Speedup
from splashpy.bench.suites import Question, quick_questions
from splashpy.drafting.combined import CombinedDrafter
from splashpy.drafting.lookup import LookupDrafter


@dataclass(slots=True)
class Case:
    """One prompt and what drafting everything gave."""

    question: Question
    tokens: int
    tau: dict[str, float] = field(default_factory=dict)
    outcomes: list[str] = field(default_factory=list)


def main() -> None:
    parser = measure.options(__doc__ or "", rounds=3)
    parser.add_argument("--draft", metavar="DIR", help="another drafter")
    parser.add_argument(
        "--max-tokens", type=int, default=128, help="of every answer [%(default)s]"
    )
    options = parser.parse_args()
    session, default = open_pair(options.draft)
    questions = quick_questions()
    cases = [examine(session, default, q, options.max_tokens) for q in questions]
    legs = time_arms(session, questions, 2 * options.rounds, options.max_tokens)
    document = {
        "schema": "splashpy.bench_demo/3",
        "max_tokens": options.max_tokens,
        "rounds": options.rounds,
        "draft": asdict(session.loaded.draft),
        "block_size": default.drafter.block_size,
        "costs": asdict(default.costs.model),
        **describe(cases, legs),
    }
    measure.report(document, table(document), as_json=options.json)
    if document["texts"]["mismatches"]:
        raise SystemExit("error: drafts changed a text")


def open_pair(draft: str | None) -> tuple[Session, CombinedDrafter]:
    session = open_demo(draft)
    drafter = session.drafter
    if not isinstance(drafter, CombinedDrafter):
        reason = session.loaded.draft.reason
        raise SystemExit(f"error: no drafter ({reason})\nfix:   --draft DIR")
    return session, drafter


def examine(
    session: Session, default: CombinedDrafter, question: Question, max_tokens: int
) -> Case:
    """Count acceptance and compare texts while everything is drafted."""
    ids = session.prompt_ids(question.turns[0])
    plain = answer(session, ids, session.plain, max_tokens=max_tokens).token_ids
    case = Case(question, len(plain))
    alone = default.drafter
    arms = {"drafter": alone, "combined": CombinedDrafter(LookupDrafter(), alone)}
    for name, drafter in arms.items():
        found = answer(session, ids, drafter, max_tokens=max_tokens)
        case.tau[name] = found.counts.tau
        case.outcomes.append(explain(session, ids, plain, found.token_ids).outcome)
    measure.note(f"{question.kind}: {question.turns[0][:60]}")
    return case


def time_arms(
    session: Session, questions: Sequence[Question], trials: int, max_tokens: int
) -> list[Leg]:
    bench = Bench(session=session, trials=trials, max_tokens=max_tokens)
    legs: list[Leg] = []
    for number, answered in enumerate(bench.run(questions), 1):
        legs += answered
        if number % len(questions) == 0:
            measure.note(f"trial {number // len(questions)} of {trials}")
    return legs


def describe(cases: Sequence[Case], legs: list[Leg]) -> dict[str, Any]:
    found = speedup_of(legs)
    if found is None:
        raise SystemExit("error: the answers are too short to time")
    outcomes = [each for case in cases for each in case.outcomes]
    outcomes += [leg.outcome for leg in legs if leg.outcome]
    return {
        "tau": {
            name: fmean(case.tau[name] for case in cases)
            for name in ("drafter", "combined")
        },
        "ratios": {"geomean": found.geomean.value, "worst": found.worst.value},
        "speedup": found.fields(),
        "texts": {
            "compared": len(outcomes),
            "near_ties": outcomes.count("tie"),
            "mismatches": outcomes.count("mismatch"),
        },
        "prompts": [row_of(case, legs, found) for case in cases],
    }


def row_of(case: Case, legs: list[Leg], found: Speedup) -> dict[str, Any]:
    ours = [leg for leg in legs if leg.prompt == case.question.id]
    drafted = [leg for leg in ours if leg.arm == "draft"]
    passes = sum(leg.cycles for leg in drafted)
    return {
        "kind": case.question.kind,
        "text": case.question.turns[0],
        "tokens": case.tokens,
        "tau": case.tau,
        "speedup": asdict(found.by_prompt[key(ours[0])]),
        "drafting": sum(sum(leg.kept.values()) for leg in drafted) / passes,
    }


def table(document: dict[str, Any]) -> list[list[str]]:
    head = ["prompt", "tokens", "tau drafter", "tau combined", "drafting", "speed", ""]
    rows = [
        [
            f"{each['kind']}: {each['text'][:44]}",
            str(each["tokens"]),
            f"{each['tau']['drafter']:.2f}",
            f"{each['tau']['combined']:.2f}",
            f"{100 * each['drafting']:.0f} %",
            f"{each['speedup']['value']:.2f}",
            f"{each['speedup']['low']:.2f} to {each['speedup']['high']:.2f}",
        ]
        for each in document["prompts"]
    ]
    tau, speed, texts = document["tau"], document["speedup"], document["texts"]
    means = [f"{tau[name]:.2f}" for name in ("drafter", "combined")]
    geomean = f"{speed['geomean']:.2f}"
    low_high = f"{speed['low']:.2f} to {speed['high']:.2f}"
    rows += [
        ["mean; speed: geometric mean", "", *means, "", geomean, low_high],
        ["worst", "", "", "", "", f"{speed['worst']:.2f}", ""],
        [
            f"texts compared: {texts['compared']}, near-ties {texts['near_ties']}",
            *[""] * 6,
        ],
    ]
    return [head, *rows]


if __name__ == "__main__":
    main()
