# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import math
from collections.abc import Callable

import mlx.core as mx
import pytest

from splashpy.bench.lossless import (
    compare,
    explain,
    first_difference,
    plain_logits,
    tie_tolerance,
)
from splashpy.bench.prompts import QUICK
from splashpy.bench.session import Draw, Session

PROMPT = tuple(range(30))


@pytest.fixture
def session(open_session: Callable[..., Session]) -> Session:
    return open_session()


def test_an_untrained_drafter_changes_nothing(session: Session) -> None:
    for quick in QUICK[:3]:
        result = compare(session, session.prompt_ids(quick.text), max_tokens=30)
        assert result.outcome == "identical"
        assert 0 < result.tokens <= 30
        assert 0 <= result.accepted <= result.drafted
        assert result.drafted > 0


def test_a_run_without_drafts_is_counted_as_one(
    open_session: Callable[..., Session],
) -> None:
    session = open_session(draft=None, lookup=False)
    result = compare(session, PROMPT, max_tokens=8)
    assert (result.outcome, result.drafted, result.accepted) == ("identical", 0, 0)


def test_a_broken_rule_is_found_with_token_and_gap(
    session: Session, broken_rule: None
) -> None:
    result = compare(session, PROMPT, max_tokens=30)
    assert result.outcome == "mismatch"
    assert result.at == 1
    assert result.plain_token != result.drafted_token
    assert result.gap > result.tolerance > 0


def test_a_swap_of_two_tied_tokens_is_a_tie(session: Session) -> None:
    plain = session.answer(PROMPT, session.plain, max_tokens=6).token_ids
    logits = plain_logits(session, (*PROMPT, *plain[:4]))
    runner_up = int(mx.argsort(logits)[-2].item())
    swapped = [*plain[:4], runner_up, 7]
    apart = explain(session, PROMPT, plain, swapped)
    assert apart.outcome == "mismatch"
    assert apart.at == 4
    assert apart.gap == pytest.approx(
        (logits[plain[4]] - logits[runner_up]).item(), abs=1e-5
    )
    # The same two texts count as a tie once rounding is as coarse as their gap.
    session.target.embed = lambda ids: mx.zeros((1, 1), mx.bfloat16)
    coarse = explain(session, PROMPT, plain, swapped)
    assert (coarse.outcome == "tie") == (coarse.gap <= coarse.tolerance)
    assert coarse.tolerance == 256 * apart.tolerance


@pytest.mark.parametrize("seed", range(1, 5))
def test_the_gap_of_a_seeded_text_counts_the_noise_it_was_drawn_with(
    seed: int, session: Session
) -> None:
    draw = Draw(temperature=0.9, seed=seed)
    drawn = session.answer(PROMPT, session.plain, max_tokens=12, draw=draw).token_ids
    likely = session.answer(PROMPT, session.plain, max_tokens=12).token_ids
    assert explain(session, PROMPT, drawn, likely).gap < 0
    assert explain(session, PROMPT, drawn, likely, draw).gap > 0


def test_a_seed_gives_the_same_text_with_drafts_and_without(session: Session) -> None:
    draw = Draw(temperature=0.9, seed=3)
    result = compare(session, PROMPT, max_tokens=30, draw=draw)
    assert (result.outcome, result.seed) == ("identical", 3)
    assert result.drafted > 0


def test_a_text_that_ends_early_is_a_mismatch(session: Session) -> None:
    plain = session.answer(PROMPT, session.plain, max_tokens=6).token_ids
    result = explain(session, PROMPT, plain, plain[:4])
    assert result.outcome == "mismatch"
    assert result.at == 4
    assert result.drafted_token == -1
    assert result.gap == math.inf


def test_the_first_difference_is_found() -> None:
    assert first_difference([1, 2, 3], [1, 2, 3]) is None
    assert first_difference([1, 2, 3], [1, 9, 3]) == 1
    assert first_difference([1, 2], [1, 2, 3]) == 2
    assert first_difference([], []) is None


def test_two_bfloat16_ulps_at_a_logit_of_twenty_are_a_quarter() -> None:
    assert tie_tolerance(20.0, mx.bfloat16) == 0.25
    assert tie_tolerance(20.0, mx.float32) == 2.0**-10


def test_the_quick_suite_has_three_prompts_of_each_kind() -> None:
    kinds = [prompt.kind for prompt in QUICK]
    assert len(QUICK) == 12
    assert {kind: kinds.count(kind) for kind in kinds} == dict.fromkeys(
        ("chat", "code", "math", "edit"), 3
    )
