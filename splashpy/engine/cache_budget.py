# SPDX-License-Identifier: Apache-2.0
"""How many bytes the states of earlier requests may take."""

from __future__ import annotations

from splashpy.engine.memory import STORED_SHARE, Plan

LARGEST_BYTES = 8 << 30
UNKNOWN_BYTES = 1 << 30
"""Where the machine does not say how much memory it has."""


def cache_budget(plan: Plan | None) -> int:
    """Bytes of the cache in memory; 0 where nothing is left for it.

    Args:
        plan: of the loaded model; None where the machine does not say what it has.
    """
    if plan is None or not plan.budget:
        return UNKNOWN_BYTES
    left = plan.budget - plan.total
    return max(0, min(int(left * STORED_SHARE), LARGEST_BYTES))
