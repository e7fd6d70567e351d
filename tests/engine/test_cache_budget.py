# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from splashpy.engine.cache_budget import LARGEST_BYTES, UNKNOWN_BYTES, cache_budget
from splashpy.engine.memory import Needs, Plan

GIB = 1 << 30
NEEDS = Needs(target=4 * GIB, row=1 << 16, context_max=16384)  # 1 GiB of rows


@pytest.mark.parametrize(
    ("budget", "share"), [(16 * GIB, 0.6), (128 * GIB, None), (5 * GIB, 0.0)]
)
def test_the_cache_takes_a_share_of_what_the_plan_leaves(
    budget: int, share: float | None
) -> None:
    plan = Plan(needs=NEEDS, budget=budget, kv="bf16", context=NEEDS.context_max)
    left = budget - plan.total
    expected = LARGEST_BYTES if share is None else int(share * left)
    assert cache_budget(plan) == expected


def test_a_machine_that_does_not_say_gets_a_fixed_one() -> None:
    assert cache_budget(None) == UNKNOWN_BYTES
