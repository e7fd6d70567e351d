# SPDX-License-Identifier: Apache-2.0
"""Measure the demo pair on the twelve quick prompts at temperature 0.

Acceptance lengths count the target's own token (1 is plain decoding) and are taken
while everything is drafted: by the drafter alone, and by drafter and lookup. Speed is
that of the default settings, which draft where it pays, against plain decoding in the
same engine: tokens after the first over the time between the first and the last. A
round goes through the prompts forwards with plain decoding first, then backwards with
it last; a prompt's ratio is the median over its pairs. Every text must be the one plain
decoding writes, near-ties aside.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from statistics import fmean, geometric_mean, median
from typing import Any

import measure
from demo_pair import open_demo

from splashpy.bench.lossless import explain
from splashpy.bench.prompts import QUICK, QuickPrompt
from splashpy.bench.session import Session
from splashpy.drafting.combined import CombinedDrafter
from splashpy.drafting.drafter import Drafter
from splashpy.drafting.lookup import LookupDrafter
from splashpy.engine.request import TokensCommitted


@dataclass(frozen=True, slots=True)
class Run:
    """One answer.

    Attributes:
        token_ids: the answer.
        tau: tokens a cycle.
        drafting: share of the cycles that drafted.
        rate: tokens a second after the first.
    """

    token_ids: tuple[int, ...]
    tau: float
    drafting: float
    rate: float


@dataclass(slots=True)
class Case:
    """One prompt and everything measured with it."""

    prompt: QuickPrompt
    token_ids: tuple[int, ...]
    plain: Run
    tau: dict[str, float] = field(default_factory=dict)
    outcomes: dict[str, str] = field(default_factory=dict)
    samples: dict[str, list[dict[str, float]]] = field(default_factory=dict)
    drafting: float = 0.0

    @property
    def ratio(self) -> dict[str, float]:
        """Speed against plain decoding, pair by pair of neighbouring runs."""
        pairs = zip(self.samples["default"], self.samples["plain"], strict=True)
        ratios = [{"ratio": ours["decode"] / plain["decode"]} for ours, plain in pairs]
        return measure.summary(ratios, "ratio")


@dataclass(frozen=True, slots=True)
class Bench:
    """A session and its ways to draft."""

    session: Session
    default: CombinedDrafter
    max_tokens: int

    def run(self, token_ids: tuple[int, ...], drafter: Drafter) -> Run:
        cycles = [
            event
            for event in self.session.events(
                token_ids,
                drafter,
                max_tokens=self.max_tokens,
                cancelled=lambda: False,
            )
            if isinstance(event, TokensCommitted)
        ]
        answer = tuple(token for cycle in cycles for token in cycle.token_ids)
        first, *rest = cycles
        count = max(len(rest), 1)
        seconds = cycles[-1].at - first.at
        return Run(
            answer,
            tau=(len(answer) - 1) / count,
            drafting=sum(cycle.drafted > 0 for cycle in rest) / count,
            rate=(len(answer) - 1) / seconds if rest else 0.0,
        )


def main() -> None:
    parser = measure.options(__doc__ or "", rounds=3)
    parser.add_argument("--draft", metavar="DIR", help="another drafter")
    parser.add_argument(
        "--max-tokens", type=int, default=128, help="of every answer [%(default)s]"
    )
    options = parser.parse_args()
    bench = open_bench(options.draft, options.max_tokens)
    cases = [examine(bench, prompt) for prompt in QUICK]
    for number in range(options.rounds):
        time_round(bench, cases)
        measure.note(f"round {number + 1} of {options.rounds}")
    document = describe(bench, cases, options.rounds)
    measure.report(document, table(document), as_json=options.json)
    outcomes = [each for case in cases for each in case.outcomes.values()]
    if "mismatch" in outcomes:
        raise SystemExit("error: drafts changed a text")


def open_bench(draft: str | None, max_tokens: int) -> Bench:
    session = open_demo(draft)
    drafter = session.drafter
    if not isinstance(drafter, CombinedDrafter):
        reason = session.loaded.draft.reason
        raise SystemExit(f"error: no drafter ({reason})\nfix:   --draft DIR")
    return Bench(session, drafter, max_tokens)


def examine(bench: Bench, prompt: QuickPrompt) -> Case:
    """Count acceptance and compare texts; warms every arm up."""
    session = bench.session
    token_ids = session.prompt_ids(prompt.text)
    case = Case(prompt, token_ids, bench.run(token_ids, session.plain))
    alone = bench.default.drafter
    arms = {"drafter": alone, "combined": CombinedDrafter(LookupDrafter(), alone)}
    for name, drafter in arms.items():
        run = bench.run(token_ids, drafter)
        case.tau[name] = run.tau
        compare(bench, case, name, run)
    compare(bench, case, "default", bench.run(token_ids, bench.default))
    measure.note(f"{prompt.kind}: {prompt.text[:60]}")
    return case


def compare(bench: Bench, case: Case, name: str, run: Run) -> None:
    found = explain(bench.session, case.token_ids, case.plain.token_ids, run.token_ids)
    case.outcomes[name] = found.outcome


def time_round(bench: Bench, cases: Sequence[Case]) -> None:
    arms: list[tuple[str, Drafter]] = [
        ("plain", bench.session.plain),
        ("default", bench.default),
    ]
    passes: list[tuple[Iterable[Case], list[tuple[str, Drafter]]]] = [
        (cases, arms),
        (list(reversed(cases)), arms[::-1]),
    ]
    for order, turns in passes:
        for case in order:
            for name, drafter in turns:
                run = bench.run(case.token_ids, drafter)
                case.samples.setdefault(name, []).append({"decode": run.rate})
                if name == "default":
                    case.drafting = run.drafting


def describe(bench: Bench, cases: Sequence[Case], rounds: int) -> dict[str, Any]:
    ratios = [case.ratio["median"] for case in cases]
    outcomes = [each for case in cases for each in case.outcomes.values()]
    return {
        "schema": "splashpy.bench_demo/1",
        "max_tokens": bench.max_tokens,
        "rounds": rounds,
        "draft": asdict(bench.session.loaded.draft),
        "block_size": bench.default.drafter.block_size,
        "costs": asdict(bench.default.costs.model),
        "tau": {
            name: fmean(case.tau[name] for case in cases)
            for name in ("drafter", "combined")
        },
        "ratios": {"geomean": geometric_mean(ratios), "worst": min(ratios)},
        "spread": median(case.ratio["spread"] for case in cases),
        "texts": {
            "compared": len(outcomes),
            "near_ties": outcomes.count("tie"),
            "mismatches": outcomes.count("mismatch"),
        },
        "prompts": [row_of(case) for case in cases],
    }


def row_of(case: Case) -> dict[str, Any]:
    return {
        **asdict(case.prompt),
        "tokens": len(case.plain.token_ids),
        "tau": case.tau,
        "ratio": case.ratio["median"],
        "spread": case.ratio["spread"],
        "drafting": case.drafting,
        "texts": case.outcomes,
        "tok_s": {
            name: measure.summary(taken, "decode")
            for name, taken in case.samples.items()
        },
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
            f"{each['ratio']:.2f}",
            f"±{100 * each['spread']:.0f} %",
        ]
        for each in document["prompts"]
    ]
    tau, ratios, texts = document["tau"], document["ratios"], document["texts"]
    rows.append(
        [
            "mean; speed: geometric mean",
            "",
            f"{tau['drafter']:.2f}",
            f"{tau['combined']:.2f}",
            "",
            f"{ratios['geomean']:.2f}",
            f"±{100 * document['spread']:.0f} %",
        ]
    )
    rows.append(["worst", "", "", "", "", f"{ratios['worst']:.2f}", ""])
    compared = f"texts compared: {texts['compared']}, near-ties {texts['near_ties']}"
    rows.append([compared, *[""] * 6])
    return [head, *rows]


if __name__ == "__main__":
    main()
