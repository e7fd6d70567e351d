# SPDX-License-Identifier: Apache-2.0
"""Lanes of a tiny target, stepped by hand, and the same requests alone."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any

import tiny

from splashpy.cache.prefix import PrefixCache
from splashpy.drafting.drafter import Drafter
from splashpy.drafting.pace import FREE
from splashpy.drafting.plain import PlainDrafter
from splashpy.engine.generation import generate
from splashpy.engine.lane_claim import LaneClaim, LaneSize
from splashpy.engine.lanes import Lanes
from splashpy.engine.memory_ledger import MemoryLedger
from splashpy.engine.request import (
    EngineEvent,
    Failed,
    Finished,
    GenerationRequest,
    TokensCommitted,
)
from splashpy.engine.task import Means, Task
from splashpy.engine.widths import Widths
from splashpy.models.target import MlxLmTarget
from splashpy.verification.sampling import SamplingParams

GREEDY = SamplingParams()


def ask(name: str, prompt: Iterable[int], **fields: Any) -> GenerationRequest:
    return GenerationRequest(
        id=name,
        token_ids=tuple(prompt),
        **{"sampling": GREEDY, "seed": 5, "max_new_tokens": 20, **fields},
    )


@dataclass
class Bench:
    """Lanes and all their events, in order."""

    target: MlxLmTarget
    most: int = 4
    cache: PrefixCache | None = None
    ledger: MemoryLedger = field(default_factory=MemoryLedger)
    rows: int | None = None
    size: LaneSize | None = None
    clock: Callable[[], float] = perf_counter
    events: list[EngineEvent] = field(default_factory=list)
    gone: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.lanes = Lanes(
            self.target,
            Widths(FREE),
            most=self.most,
            ledger=self.ledger,
            rows=self.rows,
            clock=self.clock,
        )

    def admit(self, request: GenerationRequest, drafter: Drafter | None = None) -> Task:
        drafter = drafter or PlainDrafter()
        size = self.size or LaneSize(self.target.facts.kv_bytes_per_token)
        claim = LaneClaim(self.ledger, size)
        task = Task(
            request,
            Means(self.target, drafter, self.cache, self.clock, claim),
            lambda: request.id in self.gone,
            share=self.lanes.share,
        )
        self.lanes.admit(task)
        return task

    def step(self) -> list[EngineEvent]:
        new = list(self.lanes.step(alone=True))
        self.events += new
        return new

    def finish(self) -> None:
        while self.lanes.busy:
            self.step()

    def cycles(self, name: str) -> list[TokensCommitted]:
        cycles = [e for e in self.events if isinstance(e, TokensCommitted)]
        return [event for event in cycles if event.id == name]

    def tokens(self, name: str) -> list[int]:
        return [token for cycle in self.cycles(name) for token in cycle.token_ids]

    def end(self, name: str) -> Finished | Failed:
        ends = [e for e in self.events if isinstance(e, Finished | Failed)]
        (event,) = [e for e in ends if e.id == name]
        return event


def cycles_alone(
    target: MlxLmTarget, request: GenerationRequest
) -> list[TokensCommitted]:
    plain = PlainDrafter()
    events = generate(request, target, plain, None, cancelled=lambda: False)
    return [event for event in events if isinstance(event, TokensCommitted)]


def alone(target: MlxLmTarget, request: GenerationRequest) -> list[int]:
    cycles = cycles_alone(target, request)
    return [token for cycle in cycles for token in cycle.token_ids]


def scripted(
    target: MlxLmTarget, request: GenerationRequest, lengths: Iterator[int]
) -> tiny.ScriptedDrafter:
    truth = alone(target, request)
    return tiny.ScriptedDrafter(truth, len(request.token_ids), lengths, block_size=4)
