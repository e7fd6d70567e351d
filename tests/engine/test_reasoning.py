# SPDX-License-Identifier: Apache-2.0
"""Answers whose reasoning is limited: with drafts and without, the same."""

from __future__ import annotations

from collections.abc import Callable
from itertools import cycle

import pytest
import tiny

from splashpy.drafting.combined import CombinedDrafter
from splashpy.drafting.dflash2 import DFlash2Drafter
from splashpy.drafting.lookup import LookupDrafter
from splashpy.drafting.plain import PlainDrafter
from splashpy.verification.reasoning import ReasoningLimit
from splashpy.verification.sampling import SamplingParams

BRIDGE, CLOSE = 100, 101


@pytest.mark.parametrize("sampled", [False, True], ids=["greedy", "seeded"])
@pytest.mark.parametrize("tokens", [0, 1, 9])
def test_drafts_change_no_text_whose_reasoning_is_limited(
    run: Callable, tokens: int, sampled: bool
) -> None:
    target = tiny.target()
    free = SamplingParams(temperature=0.9) if sampled else SamplingParams()
    limit = ReasoningLimit(tokens=tokens, closing=(BRIDGE, CLOSE), inside=True)
    options = {"sampling": free, "seeded": sampled, "logprobs": 0}
    unlimited = run(target, PlainDrafter(), **options).tokens
    plain = run(target, PlainDrafter(), reasoning=limit, **options)
    assert CLOSE not in unlimited[:tokens]
    assert plain.tokens[: tokens + 2] == [*unlimited[:tokens], BRIDGE, CLOSE]

    network = DFlash2Drafter(tiny.drafter_network(), target)
    target.tap(network.feature_layers)
    for drafter in (
        tiny.ScriptedDrafter(plain.tokens, 20, cycle([0, 7, 2])),
        tiny.ScriptedDrafter(unlimited, 20, cycle([7])),
        CombinedDrafter(LookupDrafter(), network),
    ):
        drafted = run(target, drafter, reasoning=limit, **options)
        assert drafted.tokens == plain.tokens
        assert [e.logprobs[0] for e in drafted.cycles][:1] == [
            e.logprobs[0] for e in plain.cycles
        ][:1]


def test_what_ends_the_reasoning_costs_one_pass(run: Callable) -> None:
    limit = ReasoningLimit(tokens=4, closing=(*range(110, 116), CLOSE), inside=True)

    answer = run(tiny.target(), LookupDrafter(), reasoning=limit, max_new_tokens=12)

    assert answer.tokens[4:11] == [*range(110, 116), CLOSE]
    assert any(event.accepted >= 6 for event in answer.cycles)
