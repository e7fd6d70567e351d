# SPDX-License-Identifier: Apache-2.0
"""Drafting from frequent tokens only."""

from __future__ import annotations

from dataclasses import replace

import mlx.core as mx
import pytest
import tiny

from splashpy.drafting.dflash2 import DFlash2Drafter
from splashpy.drafting.drafter import DraftSampling, Proposal
from splashpy.drafting.plain import PlainDrafter
from splashpy.engine.generation import generate
from splashpy.engine.request import GenerationRequest, TokensCommitted
from splashpy.models.dflash2 import DFlashNetwork
from splashpy.models.target import MlxLmTarget
from splashpy.verification.sampling import SamplingParams

FREQUENT = tuple(range(3, 250, 7))


class Masked:
    """A target's ends whose head gives other tokens no chance."""

    def __init__(self, target: MlxLmTarget):
        self.embed, self.head_rows, self._head = (
            target.embed,
            target.head_rows,
            target.head,
        )

    def head(self, hidden: mx.array) -> mx.array:
        logits = self._head(hidden)
        allowed = mx.zeros(logits.shape[1], dtype=mx.bool_)
        allowed[mx.array(FREQUENT)] = True
        return mx.where(allowed, logits, -mx.inf)


def network(version: int = 2) -> DFlashNetwork:
    found = tiny.drafter_network(version)
    found.config = replace(found.config, frequent_tokens=FREQUENT)
    return found


def draft(
    drafter: DFlash2Drafter, sampling: DraftSampling, seed: int, limit: int
) -> Proposal:
    state = drafter.new_state()
    key = mx.random.key(seed)
    features = mx.random.normal((20, 64 * len(drafter.feature_layers)), key=key)
    drafter.observe(state, [], features, 0)
    return drafter.propose(state, mx.array(seed), limit, sampling)


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("limit", [1, 4, 7])
@pytest.mark.parametrize(
    "sampling",
    [
        DraftSampling(),
        DraftSampling(temperature=1.5, seed=5, position=21),
        DraftSampling(temperature=1.5, seed=5, position=21, coupled=True),
    ],
    ids=["greedy", "sampled", "coupled"],
)
def test_a_restricted_head_drafts_what_a_masked_whole_head_drafts(
    version: int, limit: int, sampling: DraftSampling
) -> None:
    target = tiny.target()
    restricted = DFlash2Drafter(network(version), target)
    masked = DFlash2Drafter(network(version), Masked(target), whole_vocabulary=True)
    seen = set()
    for seed in range(8):
        ours = draft(restricted, sampling, seed, limit)
        theirs = draft(masked, sampling, seed, limit)
        assert mx.array_equal(ours.token_ids, theirs.token_ids)
        assert ours.token_ids.dtype == mx.int32
        if theirs.probs is not None:
            assert mx.array_equal(ours.candidates, theirs.candidates)
            assert mx.allclose(ours.probs, theirs.probs, atol=1e-5)
        seen.update(ours.token_ids.tolist())
    assert seen <= set(FREQUENT)
    assert len(seen) > 1


def test_the_whole_vocabulary_is_drafted_where_that_is_wished() -> None:
    target = tiny.target()
    whole = DFlash2Drafter(network(), target, whole_vocabulary=True)
    unaware = DFlash2Drafter(tiny.drafter_network(), target)
    other = 0
    for seed in range(8):
        ours = draft(whole, DraftSampling(), seed, 7).token_ids
        assert mx.array_equal(ours, draft(unaware, DraftSampling(), seed, 7).token_ids)
        other += sum(token not in FREQUENT for token in ours.tolist())
    assert other > 0


@pytest.mark.parametrize("seeded", [False, True], ids=["greedy", "seeded"])
def test_a_restricted_head_changes_no_text(seeded: bool) -> None:
    target = tiny.target()
    drafter = DFlash2Drafter(network(), target)
    target.tap(drafter.feature_layers)
    request = GenerationRequest(
        id="r",
        token_ids=tuple(range(30)),
        sampling=SamplingParams(temperature=0.9 if seeded else 0.0),
        seed=7,
        seeded=seeded,
        max_new_tokens=60,
    )
    plain, drafted = (
        [
            token
            for event in generate(request, target, each, None, cancelled=lambda: False)
            if isinstance(event, TokensCommitted)
            for token in event.token_ids
        ]
        for each in (PlainDrafter(), drafter)
    )
    assert len(plain) == 60
    assert any(token not in FREQUENT for token in plain)
    assert drafted == plain
