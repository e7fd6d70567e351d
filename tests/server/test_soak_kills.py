# SPDX-License-Identifier: Apache-2.0
"""A real engine process is killed now and then under random requests."""

from __future__ import annotations

from pathlib import Path

import pytest
import tiny
from soak_kills import soak_with_kills

from splashpy.server import restarts

pytestmark = pytest.mark.e2e


def test_what_was_sent_is_never_lost_and_what_ends_well_is_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(restarts, "FIRST_WAIT", 0.0)
    model = tiny.write_model(tmp_path / "model")
    draft = tiny.write_drafter(tmp_path / "draft")
    log = tmp_path / "engine.log"
    found = soak_with_kills(model, draft, log, count=24, kills=2, seed=6)
    assert found.wrong == [], found.ends
    assert found.deaths == 2
    assert found.replayed > 0
    assert found.ends["length"] > 0
