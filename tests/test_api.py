# SPDX-License-Identifier: Apache-2.0
"""splashpy from Python."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
import tiny

from splashpy import api

PATIENCE_SECONDS = 60.0


def test_a_load_that_is_stopped_leaves_no_engine_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engines: list[threading.Thread] = []

    def stopped(*_: Any) -> None:
        every = threading.enumerate()
        engines.extend(t for t in every if t.name == "splashpy-engine")
        raise KeyboardInterrupt

    monkeypatch.setattr(api.InProcessClient, "receive", stopped)
    before = set(threading.enumerate())

    with pytest.raises(KeyboardInterrupt):
        api.load(str(tiny.write_model(tmp_path / "model")))

    (engine,) = set(engines) - before
    engine.join(PATIENCE_SECONDS)
    assert not engine.is_alive()
