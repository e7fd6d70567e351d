# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest
import tiny

from splashpy.bench.session import Session
from splashpy.drafting.drafter import Proposal
from splashpy.engine import cycle, prefill
from splashpy.engine.sequence import Sequence
from splashpy.package.model_directory import ModelDirectory
from splashpy.protocol import LoadOptions


@pytest.fixture(scope="session")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A tiny target and an untrained drafter that fits it."""
    folder = tmp_path_factory.mktemp("pair")
    return tiny.write_model(folder / "target"), tiny.write_drafter(folder / "draft")


@pytest.fixture
def open_session(pair: tuple[Path, Path]) -> Callable[..., Session]:
    def open_pair(**options: Any) -> Session:
        target, draft = pair
        wishes = LoadOptions(**{"draft": str(draft), **options})
        return Session.open(ModelDirectory.open(target), wishes)

    return open_pair


@pytest.fixture
def broken_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    """An acceptance rule that keeps the first drafted token unseen."""
    sound = cycle.decide

    def decide(
        sequence: Sequence, logits: mx.array, proposal: Proposal, position: int
    ) -> mx.array:
        verdict = sound(sequence, logits, proposal, position)
        if not len(proposal):
            return verdict
        kept = mx.maximum(verdict[0:1], 1)
        rest = verdict[3:]
        return mx.concatenate([kept, verdict[1:2], proposal.token_ids[:1], rest])

    monkeypatch.setattr(cycle, "decide", decide)
    monkeypatch.setattr("splashpy.bench.distribution.decide", decide)
    assert prefill.decide is sound
