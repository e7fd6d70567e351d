# SPDX-License-Identifier: Apache-2.0
"""How many bytes the states of earlier requests may take."""

from __future__ import annotations

from splashpy.engine.memory import Plan

LARGEST_BYTES = 8 << 30
UNKNOWN_BYTES = 1 << 30
"""Where nobody knows how much memory there is."""

_SHARE = 0.6  # of what is left beside the weights and one full sequence


def cache_budget(plan: Plan | None) -> int:
    """Bytes of the cache in memory; 0 where nothing is left for it.

    Args:
        plan: of the memory; None where nobody knows what there is.
    """
    if plan is None:
        return UNKNOWN_BYTES
    left = plan.budget - plan.total
    return max(0, min(int(left * _SHARE), LARGEST_BYTES))
