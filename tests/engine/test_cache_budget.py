# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from splashpy.engine.cache_budget import LARGEST_BYTES, UNKNOWN_BYTES, cache_budget
from splashpy.engine.memory import Needs, Plan

GIB = 1 << 30


def plan_of(*, budget: int, weights: int) -> Plan:
    needs = Needs(target=weights, row=1 << 20, context_max=1024)
    return Plan(needs=needs, budget=budget, kv="bf16", context=1024)


@pytest.mark.parametrize(
    ("budget", "weights", "expected"),
    [
        (16 * GIB, 4 * GIB, int(0.6 * (11 * GIB - 150_000_000 - GIB))),
        (128 * GIB, 4 * GIB, LARGEST_BYTES),
        (8 * GIB, 8 * GIB, 0),
    ],
)
def test_the_cache_takes_a_share_of_what_is_left(
    budget: int, weights: int, expected: int
) -> None:
    assert cache_budget(plan_of(budget=budget, weights=weights)) == expected


def test_the_cache_is_small_where_nobody_knows_the_memory() -> None:
    assert cache_budget(None) == UNKNOWN_BYTES
