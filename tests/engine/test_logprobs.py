# SPDX-License-Identifier: Apache-2.0
"""Log-probabilities of an answer: with drafts and without, the same numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import cycle
from math import exp
from typing import Any

import pytest
import tiny

from splashpy.cache.prefix import PrefixCache
from splashpy.drafting.combined import CombinedDrafter
from splashpy.drafting.dflash2 import DFlash2Drafter
from splashpy.drafting.drafter import Drafter
from splashpy.drafting.lookup import LookupDrafter
from splashpy.drafting.plain import PlainDrafter
from splashpy.engine.request import PrefillProgress
from splashpy.models.target import MlxLmTarget
from splashpy.verification.logprobs import LEAST, TokenLogprob
from splashpy.verification.sampling import SamplingParams

GREEDY = SamplingParams()
DRAWN = SamplingParams(
    temperature=0.8, top_k=40, repetition_penalty=1.3, logit_bias=((70, 2.0),)
)


@pytest.fixture(params=["llama", "qwen3_5"])
def target(request: pytest.FixtureRequest) -> MlxLmTarget:
    return tiny.target(request.param)


def numbers(outcome: Any) -> list[TokenLogprob]:
    for event in outcome.cycles:
        assert [entry.token_id for entry in event.logprobs] == list(event.token_ids)
    return [entry for event in outcome.cycles for entry in event.logprobs]


def drafters(target: MlxLmTarget, truth: list[int]) -> Iterator[Drafter]:
    yield tiny.ScriptedDrafter(truth, 20, cycle([0, 3, 7, 1]))
    network = DFlash2Drafter(tiny.drafter_network(), target)
    target.tap(network.feature_layers)
    yield CombinedDrafter(LookupDrafter(), network)


@pytest.mark.parametrize("drawn", [False, True], ids=["own", "after sampling"])
@pytest.mark.parametrize("sampling", [GREEDY, DRAWN], ids=["greedy", "drawn"])
def test_drafts_change_no_number(
    target: MlxLmTarget, run: Callable, sampling: SamplingParams, *, drawn: bool
) -> None:
    options = {"sampling": sampling, "seeded": True, "logprobs": 5}
    options["logprobs_drawn"] = drawn
    plain = run(target, PlainDrafter(), **options)
    expected = numbers(plain)
    assert len(expected) == 40
    accepted = 0
    for drafter in drafters(target, plain.tokens):
        drafted = run(target, drafter, **options)
        assert numbers(drafted) == expected
        accepted += sum(event.accepted for event in drafted.cycles)
    assert accepted, "or nothing was proved"


def test_numbers_after_sampling_are_of_what_a_token_was_drawn_from(
    target: MlxLmTarget, run: Callable
) -> None:
    few = SamplingParams(temperature=0.9, top_k=3, repetition_penalty=1.2)
    told = numbers(run(target, sampling=few, logprobs=5, logprobs_drawn=True))
    for entry in told:
        chances = [exp(logprob) for _, logprob in entry.top]
        assert sum(chances) == pytest.approx(1, abs=1e-5)
        assert chances[3:] == [0, 0]
        assert entry.token_id in [token for token, _ in entry.top[:3]]

    certain = numbers(run(target, logprobs=2, logprobs_drawn=True))
    assert {(entry.logprob, entry.top[1][1]) for entry in certain} == {(0.0, LEAST)}


def test_numbers_are_the_targets_own_whatever_the_token_was_drawn_from(
    target: MlxLmTarget, run: Callable
) -> None:
    """A bias decides the text, and the same text has the same numbers without it."""
    forced = SamplingParams(logit_bias=((70, 1e9),))
    answer = run(target, sampling=forced, logprobs=0, max_new_tokens=6)
    assert answer.tokens == [70] * 6

    read = run(
        target, prompt=(*range(20), *answer.tokens), prompt_logprobs=0, max_new_tokens=1
    )

    prompt = [
        entry
        for event in read.events
        if isinstance(event, PrefillProgress)
        for entry in event.logprobs
    ]
    assert [entry.token_id for entry in prompt] == [*range(20), *answer.tokens]
    assert prompt[0].logprob is None
    expected = [entry.logprob for entry in numbers(answer)]
    assert [entry.logprob for entry in prompt[20:]] == pytest.approx(expected, abs=1e-4)


def test_a_prompt_is_reported_whole_in_every_chunk_and_whatever_is_cached(
    run: Callable,
) -> None:
    target, cache = tiny.target(), PrefixCache(1 << 24)
    prompt = tuple(number % 250 for number in range(300))
    run(target, prompt=prompt, cache=cache)

    for only_read in (False, True):
        outcome = run(
            target,
            prompt=prompt,
            cache=cache,
            prompt_logprobs=2,
            prefill_only=only_read,
            max_new_tokens=2,
        )
        events = [e for e in outcome.events if isinstance(e, PrefillProgress)]
        found = [entry for event in events for entry in event.logprobs]
        assert [entry.token_id for entry in found] == list(prompt)
        assert all(len(entry.top) == 2 for entry in found[1:])
        assert outcome.finished.cached_tokens == 0


def test_nothing_is_computed_that_nobody_asked_for(run: Callable) -> None:
    outcome = run(tiny.target(), LookupDrafter())

    assert all(event.logprobs == () for event in outcome.cycles)
