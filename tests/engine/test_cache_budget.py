# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from splashpy.engine.cache_budget import LARGEST_BYTES, UNKNOWN_BYTES, cache_budget

GIB = 1 << 30


@pytest.mark.parametrize(
    ("memory", "weights", "sequence", "expected"),
    [
        (0, 5 * GIB, GIB, UNKNOWN_BYTES),
        (16 * GIB, 4 * GIB, GIB, int(0.6 * 8 * GIB)),
        (128 * GIB, 4 * GIB, GIB, LARGEST_BYTES),
        (8 * GIB, 5 * GIB, GIB, 0),
    ],
)
def test_the_cache_takes_a_share_of_what_is_left(
    memory: int, weights: int, sequence: int, expected: int
) -> None:
    found = cache_budget(memory_bytes=memory, weights=weights, sequence=sequence)
    assert found == expected
