# SPDX-License-Identifier: Apache-2.0
"""One way to run a request and look at everything that happened."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
import tiny

from splashpy.cache.prefix import PrefixCache
from splashpy.drafting.drafter import Drafter
from splashpy.drafting.plain import PlainDrafter
from splashpy.engine.generation import generate
from splashpy.engine.request import (
    EngineEvent,
    Finished,
    GenerationRequest,
    TokensCommitted,
)
from splashpy.models.target import Target
from splashpy.verification.sampling import SamplingParams

PROMPT = tuple(range(20))


@dataclass
class Outcome:
    events: list[EngineEvent] = field(default_factory=list)

    @property
    def cycles(self) -> list[TokensCommitted]:
        return [e for e in self.events if isinstance(e, TokensCommitted)]

    @property
    def tokens(self) -> list[int]:
        return [token for cycle in self.cycles for token in cycle.token_ids]

    @property
    def finished(self) -> Finished:
        (event,) = [e for e in self.events if isinstance(e, Finished)]
        assert self.events[-1] is event
        return event


Run = Callable[..., Outcome]


@pytest.fixture
def run() -> Run:
    """Run one request to its end: ``run(target, drafter, cache=, cancelled=, ...)``."""

    def run_request(
        target: Target,
        drafter: Drafter | None = None,
        *,
        prompt: tuple[int, ...] = PROMPT,
        cache: PrefixCache | None = None,
        cancelled: Callable[[], bool] = lambda: False,
        sampling: SamplingParams | None = None,
        max_new_tokens: int | None = 40,
        **fields: Any,
    ) -> Outcome:
        request = GenerationRequest(
            id="r",
            token_ids=prompt,
            sampling=sampling or SamplingParams(),
            seed=fields.pop("seed", 11),
            max_new_tokens=max_new_tokens,
            **fields,
        )
        outcome = Outcome()
        for event in generate(
            request, target, drafter or PlainDrafter(), cache, cancelled=cancelled
        ):
            outcome.events.append(event)
        return outcome

    return run_request


@pytest.fixture(scope="session", params=["llama", "qwen3"])
def target(request: pytest.FixtureRequest) -> Target:
    return tiny.target(request.param)
