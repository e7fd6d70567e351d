# SPDX-License-Identifier: Apache-2.0
"""How many bytes the states of earlier requests may take."""

from __future__ import annotations

from splashpy.engine.kv_format import RESERVE_BYTES

LARGEST_BYTES = 8 << 30
UNKNOWN_BYTES = 1 << 30
"""Where the machine does not say how much memory it has."""

_SHARE = 0.6  # of what is left beside the weights and one full sequence


def cache_budget(*, memory_bytes: int, weights: int, sequence: int) -> int:
    """Bytes of the cache in memory; 0 where nothing is left for it.

    Args:
        memory_bytes: of the machine; 0 where it is not known.
        weights: bytes of target and drafter.
        sequence: bytes of one sequence that fills the context.
    """
    if not memory_bytes:
        return UNKNOWN_BYTES
    left = memory_bytes - weights - RESERVE_BYTES - sequence
    return max(0, min(int(left * _SHARE), LARGEST_BYTES))
