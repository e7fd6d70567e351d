# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from splashpy.bench.distribution import chi_square_tail, sampling_test
from splashpy.bench.session import Session
from splashpy.verification.sampling import SamplingParams

PROMPT = tuple(range(30))
WARM = SamplingParams(temperature=2.5)  # wide enough for the drafter's candidates


def test_draws_with_an_untrained_drafter_follow_the_target(
    open_session: Callable[..., Session],
) -> None:
    result = sampling_test(open_session(lookup=False), PROMPT, sampling=WARM)
    assert result.drafted == result.draws == 2000
    assert 0 < result.accepted < 2000
    assert result.bins > 3
    assert result.passed


def test_draws_by_lookup_follow_the_target(
    open_session: Callable[..., Session],
) -> None:
    session = open_session(draft=None, lookup=True)
    result = sampling_test(session, PROMPT * 3, sampling=WARM)
    assert result.drafted == 2000
    assert result.passed


def test_a_broken_rule_fails_the_test(
    open_session: Callable[..., Session], broken_rule: None
) -> None:
    result = sampling_test(open_session(lookup=False), PROMPT, sampling=WARM)
    assert not result.passed
    assert result.p_drafted < 0.001 <= result.p_plain


@pytest.mark.parametrize("freedom", [1, 4, 20, 100])
def test_the_tail_agrees_with_sums_of_squares(freedom: int) -> None:
    rng = np.random.default_rng(3)
    sums = (rng.standard_normal((200_000, freedom)) ** 2).sum(axis=1)
    for quantile in (0.5, 0.05, 0.01):
        value = float(np.quantile(sums, 1 - quantile))
        # Two percent of the tail, and what 200,000 draws leave open.
        assert chi_square_tail(value, freedom) == pytest.approx(quantile, rel=0.1)
