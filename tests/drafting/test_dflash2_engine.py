# SPDX-License-Identifier: Apache-2.0
"""A real drafter network in the engine's own cycles: the text must not change."""

from __future__ import annotations

from typing import Any

import mlx.core as mx
import pytest
import tiny

from splashpy.drafting.dflash2 import DFlash2Drafter
from splashpy.drafting.drafter import Drafter
from splashpy.drafting.plain import PlainDrafter
from splashpy.engine.generation import generate
from splashpy.engine.request import GenerationRequest, TokensCommitted
from splashpy.models.target import MlxLmTarget
from splashpy.verification.sampling import SamplingParams


def random_drafter(target: MlxLmTarget, version: int) -> DFlash2Drafter:
    drafter = DFlash2Drafter(tiny.drafter_network(version), target)
    target.tap(drafter.feature_layers)
    return drafter


def text(target: MlxLmTarget, drafter: Drafter, **fields: Any) -> tuple[list[int], int]:
    """60 tokens after the prompt, and how many of them were drafted."""
    request = GenerationRequest(
        id="r", token_ids=tuple(range(30)), seed=11, max_new_tokens=60, **fields
    )
    cycles = [
        event
        for event in generate(request, target, drafter, None, cancelled=lambda: False)
        if isinstance(event, TokensCommitted)
    ]
    tokens = [token for cycle in cycles for token in cycle.token_ids]
    assert len(tokens) == 60
    return tokens, sum(cycle.accepted for cycle in cycles)


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize(
    "fields",
    [
        {"sampling": SamplingParams()},
        {"sampling": SamplingParams(temperature=0.8, top_k=20), "seeded": True},
        {"sampling": SamplingParams(repetition_penalty=1.2)},
    ],
    ids=["greedy", "seeded", "penalties"],
)
def test_greedy_and_seeded_text_does_not_depend_on_the_drafter(
    version: int, fields: dict[str, Any]
) -> None:
    target = tiny.target()
    plain, _ = text(target, PlainDrafter(), **fields)
    drafted, _ = text(target, random_drafter(target, version), **fields)
    assert drafted == plain


def test_a_narrow_choice_lets_drafts_through() -> None:
    # Eight tokens are far likelier than the rest, so even a random drafter is right
    # now and then, and accepted runs of several lengths occur.
    bias = tuple((token, 40.0) for token in range(40, 48))
    fields = {"sampling": SamplingParams(temperature=5.0, logit_bias=bias)}
    target = tiny.target()
    plain, _ = text(target, PlainDrafter(), seeded=True, **fields)
    target_head = target.head
    drafter = random_drafter(target, 2)

    class Biased:
        """The same ends, pushed towards the same eight tokens."""

        embed = staticmethod(target.embed)

        @staticmethod
        def head(hidden: mx.array) -> mx.array:
            logits = target_head(hidden)
            ids = mx.array([token for token, _ in bias])
            return logits.at[:, ids].add(40.0)

    pushed = DFlash2Drafter(drafter._network, Biased())
    drafted, accepted = text(target, pushed, seeded=True, **fields)
    assert drafted == plain
    assert accepted > 3
