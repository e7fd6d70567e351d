# SPDX-License-Identifier: Apache-2.0
"""Costs that are added at later starts, on a clock that the work itself moves."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import mlx.core as mx
import pytest
import tiny

from splashpy.drafting.pace import Costs
from splashpy.engine import costs as coarse
from splashpy.engine import finer_costs
from splashpy.engine.finer_costs import Reach, missing, refine
from splashpy.models.state import TargetState
from splashpy.models.target import Forward, MlxLmTarget

BASE = Costs(((2, 1.1), (7, 1.6), (8, 1.7)), draft=0.4, plain_seconds=10.0)
ALL = Reach(block=8, lookup=32, lanes=4, context=4096)
ROW, DEPTH, TEXT = 1.0, 0.002, 0.5  # seconds of a row, of a row and token, of a text


class Work:
    """A target whose passes take 9 seconds, and more for rows, context and texts."""

    def __init__(self, kind: str = "llama", *, shares: bool = True):
        self.now = 0.0
        self.passes = 0
        self.busy: Callable[[], float] = lambda: 0.0
        self._target = tiny.target(kind)
        self._shares = shares
        self.facts = self._target.facts

    def new_state(self, capacity: int = 1) -> TargetState:
        return self._target.new_state(capacity)

    def shares(self) -> bool:
        return self._shares

    def forward(self, state: TargetState, token_ids: mx.array, *, rows: int) -> Forward:
        count, context = token_ids.shape[0], state.lanes[-1].offset
        self._work(9 + ROW * count + DEPTH * count * context)
        return self._target.forward(state, token_ids, rows=rows)

    def forward_together(
        self, states: Sequence[TargetState], token_ids: mx.array
    ) -> list[Forward]:
        texts, rows = token_ids.shape
        self._work(9 + ROW * texts * rows + TEXT * texts)
        pairs = zip(states, token_ids, strict=True)
        return [self._target.forward(s, ids, rows=rows) for s, ids in pairs]

    def _work(self, seconds: float) -> None:
        self.passes += 1
        self.now += seconds + self.busy()


@pytest.fixture
def work(monkeypatch: pytest.MonkeyPatch) -> Work:
    work = Work()
    for module in (coarse, finer_costs):
        monkeypatch.setattr(module, "perf_counter", lambda: work.now)
    return work


def test_every_width_depth_and_number_of_texts_is_found(work: Work) -> None:
    found, names = refine(BASE, work, ALL, 1e9)
    widths = [*range(2, 9), 12, 16, 24, 32]
    assert [rows for rows, _ in found.passes] == widths
    for rows in widths:
        assert found.verify(rows) == pytest.approx((9 + ROW * rows) / 10)
    for rows, cost in found.depths:
        assert cost == pytest.approx(DEPTH * rows / 10, rel=0.02), "short of one row"
    assert [rows for rows, _ in found.depths] == [1, 5, 8]
    grid = {(texts, rows): cost for texts, rows, cost in found.shared}
    assert grid.keys() == {(n, rows) for n in (2, 4) for rows in (1, 5, 8)}
    for (texts, rows), cost in grid.items():
        expected = (9 + ROW * texts * rows + TEXT * texts) / 10
        assert cost == pytest.approx(expected)
    assert len(names) == 3 + 8 + 6
    assert list(missing(found, work, ALL)) == []


def test_one_start_takes_little_and_later_ones_go_on(work: Work) -> None:
    costs, starts = BASE, 0
    while list(missing(costs, work, ALL)):
        before, costs_before = work.passes, costs
        costs, names = refine(costs, work, ALL, 0.1)
        assert len(names) == 1
        assert work.passes - before <= 10
        assert costs != costs_before
        starts += 1
    assert starts == 17
    whole, _ = refine(BASE, work, ALL, 1e9)
    assert dict(costs.passes) == pytest.approx(dict(whole.passes))
    assert dict(costs.depths) == pytest.approx(dict(whole.depths))
    assert [cost for *_, cost in costs.shared] == pytest.approx(
        [cost for *_, cost in whole.shared]
    )


def test_where_there_is_no_time_nothing_is_timed(work: Work) -> None:
    assert refine(BASE, work, ALL, 0.0) == (BASE, ())
    assert work.passes == 0


def test_what_is_timed_while_the_machine_is_busy_does_not_count(work: Work) -> None:
    work.busy = lambda: 5.0 if work.passes > 100 else 0.0
    found, names = refine(BASE, work, ALL, 1e9)
    assert 0 < len(names) < 17
    work.now, work.busy, work.passes = 0.0, lambda: 0.0, 0
    whole, _ = refine(BASE, work, ALL, 1e9)
    assert set(found.passes) <= set(whole.passes)
    assert len(found.depths) <= len(whole.depths)


def test_a_busy_machine_cannot_make_a_point_absurd(
    work: Work, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(finer_costs, "ODD", float("inf"))
    work.busy = lambda: 5000.0
    found, _ = refine(BASE, work, ALL, 1e9)
    passes = [1.0, *(cost for _, cost in found.passes)]
    assert passes == sorted(passes)
    assert found.verify(4) <= BASE.verify(7)
    assert found.verify(32) <= 32
    slopes = [cost for _, cost in found.depths]
    assert slopes == sorted(slopes)
    assert slopes[-1] <= 8 / 2048
    for texts, rows, cost in found.shared:
        assert 1.0 <= cost <= texts * found.verify(rows)


def test_only_what_can_happen_is_timed(work: Work) -> None:
    alone = Reach(block=0, lookup=0, lanes=1, context=4096)
    assert list(missing(BASE, work, alone)) == []
    short = Reach(block=8, lookup=0, lanes=1, context=1000)
    names = [point.name for point in missing(BASE, work, short)]
    assert names == ["3 rows", "4 rows", "5 rows", "6 rows"]


def test_texts_that_share_no_pass_cost_what_they_take_in_turn(work: Work) -> None:
    work._shares = False
    reach = Reach(block=0, lookup=0, lanes=2, context=64)
    found, _ = refine(BASE, work, reach, 1e9)
    assert found.shared == ((2, 1, 2.0),)


@pytest.mark.parametrize(
    "kind", ["llama", "qwen3_5", "qwen3_next", "gemma4", "gpt_oss"]
)
def test_a_long_context_is_made_up_for_every_kind_of_state(kind: str) -> None:
    target: MlxLmTarget = tiny.target(kind)
    state = finer_costs._deep_state(target, 600)
    grown = max(lane.offset for lane in state.lanes)
    assert grown == 600
    mx.eval(target.forward(state, mx.arange(8), rows=8).logits)
    assert max(lane.offset for lane in state.lanes) == 608
