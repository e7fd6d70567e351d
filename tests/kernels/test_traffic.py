# SPDX-License-Identifier: Apache-2.0
"""Every kernel moves what it must and hardly more, counted by the emulator."""

from __future__ import annotations

import mlx.core as mx
import numpy as np
import pytest
from kernels.suite import CACHE_BYTES, MOST_TRAFFIC, all_contests, run
from msl.emulator import EmulatedKernel, Emulation
from msl.stand_in import StandIn

CONTESTS = all_contests([mx.bfloat16])
NAMES = [f"{contest.operation} {contest.shape}" for contest, _ in CONTESTS]


@pytest.mark.parametrize("index", range(len(CONTESTS)), ids=NAMES)
def test_every_input_and_output_is_moved_about_once(
    device: StandIn, index: int
) -> None:
    contest, dtype = CONTESTS[index]
    outcome = run(contest, device, Emulation(seed=index))
    assert outcome.traffic <= MOST_TRAFFIC
    # Less would mean that something is counted that nobody reads.
    assert outcome.traffic >= 0.95
    exact = contest.tolerance == 0
    assert outcome.error <= (0 if exact else 1e-2 if dtype == mx.bfloat16 else 1e-4)


def moved(body: str, elements: int, emulation: Emulation) -> dict[str, int]:
    kernel = EmulatedKernel("move", ["x"], ["out"], body)
    report = kernel.launch(
        inputs=[np.ones(elements, np.float32)],
        output_shapes=[(elements,)],
        output_dtypes=[mx.float32],
        grid=(elements, 1, 1),
        threadgroup=(32, 1, 1),
        emulation=emulation,
    )
    assert report.findings == []
    return {name: part.moved for name, part in report.traffic.items()}


ONCE = "uint i = thread_position_in_grid.x; out[i] = x[i];"
TWICE = """
uint i = thread_position_in_grid.x, n = threads_per_grid.x;
float sum = 0;
for (uint j = 0; j < n; ++j) sum += x[(j + i / 32 * 32) % n];
out[i] = sum;
"""


def test_what_the_cache_holds_is_brought_in_once() -> None:
    caches = Emulation(cache_bytes=CACHE_BYTES)
    assert moved(TWICE, 512, caches) == {"x": 2048, "out": 2048}
    assert moved(ONCE, 100, caches) == {"x": 400, "out": 400}


def test_what_it_does_not_hold_is_brought_in_again() -> None:
    # Sixteen threadgroups read all 2048 bytes through a cache of 1024.
    found = moved(TWICE, 512, Emulation(cache_bytes=1024))
    assert found["x"] > 8 * 2048


def test_a_whole_line_is_moved_for_one_number() -> None:
    sparse = "uint i = thread_position_in_grid.x; out[i] = i % 32 == 0 ? x[i] : 0;"
    assert moved(sparse, 512, Emulation(cache_bytes=CACHE_BYTES))["x"] == 2048


def test_nothing_is_counted_without_a_cache() -> None:
    assert moved(ONCE, 64, Emulation()) == {"x": 0, "out": 0}
