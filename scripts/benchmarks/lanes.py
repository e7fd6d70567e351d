# SPDX-License-Identifier: Apache-2.0
"""Measure what it brings to run four requests of the demo pair at a time.

Three figures. The tokens per second of four answers written together against those of
one, drafting in both. The same four against four that share passes without drafts. And
the time a short request takes that arrives while a prompt of 6,000 tokens is read,
against the time it takes alone. The arms run interleaved, in one process and one
engine. Throughput is taken while all answers of an arm are written, their prompts and
whatever is left of longer ones apart.
"""

from __future__ import annotations

import itertools
import queue
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median
from time import perf_counter
from typing import Any

import measure

from splashpy.bench.suites import quick_questions
from splashpy.engine.engine import Engine, LoadFailed
from splashpy.engine.loading import Loaded, LoadRequest
from splashpy.engine.request import (
    Failed,
    Finished,
    GenerationRequest,
    PrefillProgress,
    TokensCommitted,
)
from splashpy.host.device import memory_bytes
from splashpy.host.model import Speech
from splashpy.package.library import Library
from splashpy.package.model_directory import ModelDirectory
from splashpy.packing.pull import pull
from splashpy.paths import Paths
from splashpy.protocol import Generate, LoadOptions
from splashpy.verification.sampling import SamplingParams

LANES = 4
LONG = 6000
SHORT_TOKENS = 64


@dataclass(slots=True)
class Answered:
    """One request as it was seen from outside.

    Attributes:
        asked: when.
        first: when its first token came.
        last: when its last one did.
        token_ids: the answer.
        runs: when how many of its tokens came.
    """

    asked: float
    first: float = 0.0
    last: float = 0.0
    token_ids: list[int] = field(default_factory=list)
    runs: list[tuple[float, int]] = field(default_factory=list)


class Demo:
    """The demo pair in an engine of its own.

    Args:
        draft: directory of another drafter than the package's.
    """

    def __init__(self, draft: str | None):
        paths = Paths.default()
        pull("demo", paths)
        directory = ModelDirectory.open(Library(paths).find("demo").path)
        options = LoadOptions(draft=draft, prefix_cache=False, max_concurrent=LANES)
        self.speech = Speech.from_directory(directory, None)
        self._events: queue.Queue[Any] = queue.Queue()
        self._numbers = itertools.count()
        self._answers: dict[str, Answered] = {}
        self.engine = Engine(self._events.put)
        context = self.speech.context_max
        self.engine.load(
            LoadRequest.of(directory, options, context, memory_bytes=memory_bytes())
        )
        while not isinstance(event := self._events.get(), Loaded):
            if isinstance(event, LoadFailed):
                raise SystemExit(f"error: {event.error}")
        self.loaded = event

    def ids(self, text: str) -> tuple[int, ...]:
        message = {"role": "user", "content": text}
        return self.speech.prompt(Generate(id="", messages=(message,))).token_ids

    def ask(self, ids: Sequence[int], tokens: int, *, draft: bool = True) -> str:
        name = str(next(self._numbers))
        self._answers[name] = Answered(perf_counter())
        self.engine.submit(
            GenerationRequest(
                id=name,
                token_ids=tuple(ids),
                sampling=SamplingParams(),
                seed=0,
                max_new_tokens=tokens,
                draft=draft,
            )
        )
        return name

    def until(self, name: str, kind: type) -> None:
        """Take events until one of this kind about this request."""
        while True:
            event = self._take()
            if isinstance(event, kind) and getattr(event, "id", "") == name:
                return

    def end(self, names: Sequence[str]) -> list[Answered]:
        """Take events until all these requests have ended."""
        left = set(names)
        while left:
            event = self._take()
            if isinstance(event, Finished):
                left.discard(event.id)
        return [self._answers[name] for name in names]

    def _take(self) -> Any:
        event = self._events.get()
        if isinstance(event, Failed):
            raise SystemExit(f"error: {event.error}")
        if isinstance(event, TokensCommitted):
            answer = self._answers[event.id]
            answer.first = answer.first or event.at
            answer.last = event.at
            answer.token_ids += event.token_ids
            answer.runs.append((event.at, len(event.token_ids)))
        return event


def main() -> None:
    parser = measure.options(__doc__ or "", rounds=2)
    parser.add_argument("--draft", metavar="DIR", help="another drafter")
    parser.add_argument(
        "--max-tokens", type=int, default=96, help="of every answer [%(default)s]"
    )
    options = parser.parse_args()
    demo = Demo(options.draft)
    try:
        document = measured(demo, options.rounds, options.max_tokens)
    finally:
        demo.engine.close()
    measure.report(document, table(document), as_json=options.json)


def measured(demo: Demo, rounds: int, tokens: int) -> dict[str, Any]:
    prompts = [demo.ids(question.turns[0]) for question in quick_questions()]
    groups = [prompts[i : i + LANES] for i in range(0, len(prompts), LANES)]
    rates = throughput(demo, groups, rounds, tokens)
    seconds = latency(demo, prompts[0], rounds)
    return {
        "schema": "splashpy.bench_lanes/1",
        "lanes": LANES,
        "max_tokens": tokens,
        "rounds": rounds,
        "tokens_per_second": rates,
        "short_seconds": seconds,
        "ratios": {
            "aggregate_4_vs_1": rates["four"] / rates["one"],
            "spec_vs_plain_4": rates["four"] / rates["four_plain"],
            "short_latency": seconds["beside"] / seconds["alone"],
        },
    }


def throughput(
    demo: Demo, groups: Sequence[Sequence[tuple[int, ...]]], rounds: int, tokens: int
) -> dict[str, float]:
    """Tokens per second while answers are written, the prompts' time left out."""

    def one(group: Sequence[tuple[int, ...]]) -> tuple[float, float]:
        answers = [demo.end([demo.ask(ids, tokens)])[0] for ids in group]
        return decoded(answers), sum(each.last - each.first for each in answers)

    def four(group: Sequence[tuple[int, ...]], *, draft: bool) -> tuple[float, float]:
        answers = demo.end([demo.ask(ids, tokens, draft=draft) for ids in group])
        return shared(answers)

    arms = {
        "one": one,
        "four": lambda group: four(group, draft=True),
        "four_plain": lambda group: four(group, draft=False),
    }
    sums = {name: [0.0, 0.0] for name in arms}
    for run in arms.values():
        run(groups[0])
    for number in range(rounds):
        for group in groups:
            for name in list(arms) if number % 2 else reversed(list(arms)):
                count, seconds = arms[name](group)
                sums[name][0] += count
                sums[name][1] += seconds
        measure.note(f"throughput: round {number + 1} of {rounds}")
    return {name: count / seconds for name, (count, seconds) in sums.items()}


def decoded(answers: Sequence[Answered]) -> float:
    """Tokens after the first one of every answer."""
    return float(sum(len(each.token_ids) - 1 for each in answers))


def shared(answers: Sequence[Answered]) -> tuple[float, float]:
    """Tokens and seconds while all of them were written."""
    begun = max(each.first for each in answers)
    ended = min(each.last for each in answers)
    runs = [run for each in answers for run in each.runs]
    return float(sum(n for at, n in runs if begun < at <= ended)), ended - begun


def latency(demo: Demo, short: tuple[int, ...], rounds: int) -> dict[str, float]:
    """Seconds of a short request, alone and beside a long prompt being read."""
    word = demo.ids("harbour ")
    long = (word * (LONG // len(word) + 1))[:LONG]
    times: dict[str, list[float]] = {"alone": [], "beside": []}
    for number in range(rounds):
        (answer,) = demo.end([demo.ask(short, SHORT_TOKENS)])
        times["alone"].append(answer.last - answer.asked)
        reading = demo.ask(long, 1)
        demo.until(reading, PrefillProgress)  # it was begun
        demo.until(reading, PrefillProgress)  # and its first chunk is read
        (answer,) = demo.end([demo.ask(short, SHORT_TOKENS)])
        times["beside"].append(answer.last - answer.asked)
        demo.engine.cancel(reading)
        demo.end([reading])
        measure.note(f"latency: round {number + 1} of {rounds}")
    return {name: median(each) for name, each in times.items()}


def table(document: dict[str, Any]) -> list[list[str]]:
    rates, seconds = document["tokens_per_second"], document["short_seconds"]
    ratios = document["ratios"]
    return [
        ["one answer", f"{rates['one']:.1f} tok/s", ""],
        [
            "four answers",
            f"{rates['four']:.1f} tok/s",
            f"{ratios['aggregate_4_vs_1']:.2f} x one",
        ],
        [
            "four answers without drafts",
            f"{rates['four_plain']:.1f} tok/s",
            f"drafting: {ratios['spec_vs_plain_4']:.2f} x",
        ],
        ["short request alone", f"{seconds['alone']:.2f} s", ""],
        [
            "short request beside a long prompt",
            f"{seconds['beside']:.2f} s",
            f"{ratios['short_latency']:.2f} x",
        ],
    ]


if __name__ == "__main__":
    main()
