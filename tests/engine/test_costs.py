# SPDX-License-Identifier: Apache-2.0
"""Costs of cycles, measured on a clock that the work itself moves."""

from __future__ import annotations

import itertools

import mlx.core as mx
import pytest
import tiny

from splashpy.drafting.drafter import DraftSampling, Proposal
from splashpy.drafting.pace import Costs
from splashpy.engine import costs
from splashpy.engine.costs import measure_costs, overrated
from splashpy.models.state import TargetState
from splashpy.models.target import Forward


class Work:
    """A target whose passes, and a drafter whose proposals, take a known time."""

    def __init__(self, disturbances: tuple[float, ...] = (0.0,)):
        self.now = 0.0
        self.block_size = 5
        self.limits: list[int] = []
        self._target = tiny.target()
        self._disturbances = itertools.cycle(disturbances)
        self.facts = self._target.facts

    def new_state(self, capacity: int = 1) -> TargetState:
        return self._target.new_state(capacity)

    def forward(self, state: TargetState, token_ids: mx.array, *, rows: int) -> Forward:
        self.now += 9 + token_ids.shape[0] + next(self._disturbances)
        return self._target.forward(state, token_ids, rows=rows)

    def observe(self, *_: object) -> None:
        pass

    def propose(
        self, state: object, anchor: mx.array, limit: int, sampling: DraftSampling
    ) -> Proposal:
        self.limits.append(limit)
        self.now += 4
        return Proposal(mx.zeros(limit, dtype=mx.int32))


@pytest.mark.parametrize("disturbances", [(0.0,), (700.0, *[0.0] * 6)])
def test_costs_are_the_undisturbed_times_in_plain_steps(
    monkeypatch: pytest.MonkeyPatch, disturbances: tuple[float, ...]
) -> None:
    work = Work(disturbances)
    monkeypatch.setattr(costs, "perf_counter", lambda: work.now)
    monkeypatch.setattr(costs, "_SECONDS", 1e9)
    found = measure_costs(work, [8, 2], work)
    assert found == Costs(((2, 1.1), (8, 1.7)), draft=0.4, plain_seconds=10)
    assert set(work.limits) == {1, 2, 3, 4}, "every length is traced"


def test_without_a_drafter_only_passes_are_timed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    work = Work()
    monkeypatch.setattr(costs, "perf_counter", lambda: work.now)
    assert measure_costs(work, [7]) == Costs(((7, 1.6),), plain_seconds=10)


def test_a_slow_target_is_timed_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    work = Work()
    monkeypatch.setattr(costs, "perf_counter", lambda: work.now)
    measure_costs(work, [2])
    assert work.now == 3 * (3 * 10 + 11), "one run to warm up, two that count"


def test_a_pass_that_takes_clearly_less_than_before_was_overrated(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    work = Work()
    monkeypatch.setattr(costs, "perf_counter", lambda: work.now)
    for cost, wrong in ((1.7, False), (1.0, False), (2.2, False), (2.5, True)):
        assert overrated(Costs(((8, cost),), plain_seconds=10), work, 8) == wrong


def test_more_rows_never_seem_cheaper(monkeypatch: pytest.MonkeyPatch) -> None:
    work = Work((0, 0, 0, 0, 90, 0, 0, 0, 0))  # always the pass of three rows
    monkeypatch.setattr(costs, "perf_counter", lambda: work.now)
    found = dict(measure_costs(work, [2, 3, 4, 5, 6, 7]).passes)
    assert found[2] == 1.1
    assert set(list(found.values())[1:]) == {10.2}
