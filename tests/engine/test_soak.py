# SPDX-License-Identifier: Apache-2.0
"""The two-minute form of ``scripts/soak``: as many requests as fit into the time."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
import tiny
from soak_requests import soak

SECONDS = 25.0  # of each target, and as many for the solo runs; fewer on a busy machine
LEAST, MOST = 12, 250


@pytest.mark.parametrize("family", ["llama", "qwen3_5"])
def test_random_requests_at_a_time_equal_their_solo_runs(
    family: str, tmp_path: Path
) -> None:
    model = tiny.write_model(tmp_path / "model", family)
    draft = tiny.write_drafter(tmp_path / "draft")
    ends = time.perf_counter() + SECONDS
    asked = 0

    def enough() -> bool:
        nonlocal asked
        asked += 1
        return asked > LEAST and time.perf_counter() > ends

    report = soak(model, draft, count=MOST, seed=3, enough=enough)
    assert report.wrong == []
    assert report.asked >= LEAST
