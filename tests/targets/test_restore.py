# SPDX-License-Identifier: Apache-2.0
"""A state taken up again computes what a fresh one computes, whatever came between."""

from __future__ import annotations

from collections.abc import Callable

import mlx.core as mx
import pytest
import tiny
from mlx.utils import tree_map

from splashpy.cache.plan import Policy
from splashpy.cache.prefix import PrefixCache
from splashpy.engine import prefill
from splashpy.models.loading import make_target
from splashpy.models.recurrent_lane import LaneRecurrent
from splashpy.models.state import TargetState
from splashpy.models.target import MlxLmTarget

ARCHITECTURES = tiny.MEMORIES
LONG = tuple(i * 61 % 249 for i in range(90))
CHUNK = 32


@pytest.fixture
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prefill, "FIRST_CHUNK", CHUNK)
    monkeypatch.setattr(prefill, "next_chunk", lambda rate: CHUNK)


def read(target: MlxLmTarget, *parts: tuple[int, ...]) -> TargetState:
    """A state that read some chunks of a prompt, one after the other."""
    state = target.new_state(sum(map(len, parts)))
    for part in parts:
        target.forward(state, mx.array(part), rows=0)
    return state


def test_the_next_turn_continues_where_the_last_one_ended(
    target: MlxLmTarget, answer: Callable, drafter: Callable
) -> None:
    cache = PrefixCache()
    first = answer(target, drafter(target), prompt=LONG, cache=cache, tokens=6)
    prompt = (*LONG, *first.tokens, 3, 1, 4, 1, 5)
    warm = answer(target, drafter(target), prompt=prompt, cache=cache, tokens=8)
    cold = answer(target, drafter(target), prompt=prompt, tokens=8)
    assert warm.finished.cached_tokens == len(LONG) + 5
    assert warm.tokens == cold.tokens


@pytest.mark.usefixtures("small_chunks")
@pytest.mark.parametrize("shared", [20, 64, 75])
def test_a_prompt_that_departs_from_the_last_one_is_read_truly(
    shared: int,
    target: MlxLmTarget,
    answer: Callable,
    drafter: Callable,
    difference: Callable,
) -> None:
    cache = PrefixCache(policy=Policy(rung=CHUNK, rung_before_stable=0))
    answer(target, drafter(target), prompt=LONG, cache=cache, tokens=6)
    prompt = (*LONG[:shared], *range(229, 249))
    warm = answer(target, drafter(target), prompt=prompt, cache=cache, tokens=8)
    cold = answer(target, drafter(target), prompt=prompt, tokens=8)
    # A recurrent state goes back to a rung, or begins again.
    kept = shared
    if any(isinstance(lane, LaneRecurrent) for lane in warm.state.lanes):
        kept = 64 if shared >= 64 else 0
    assert warm.finished.cached_tokens == kept
    assert warm.tokens == cold.tokens
    assert difference(warm.state, cold.state) == 0


@pytest.mark.parametrize("shared", [300, 600])
@pytest.mark.parametrize("family", ["qwen3_5", "gpt_oss", "gemma4"])
def test_a_long_prompt_that_departs_where_rows_are_gone_is_read_truly(
    family: str,
    shared: int,
    answer: Callable,
    drafter: Callable,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(prefill, "next_chunk", lambda rate: prefill.FIRST_CHUNK)
    target = make_target(tiny.model(family), family, 2048, 0)
    long = tuple(i * 61 % 249 for i in range(700))
    cache = PrefixCache(policy=Policy(rung=512, rung_before_stable=0))
    answer(target, drafter(target), prompt=long, cache=cache, tokens=4)
    prompt = (*long[:shared], *range(229, 249))
    warm = answer(target, drafter(target), prompt=prompt, cache=cache, tokens=6)
    cold = answer(target, drafter(target), prompt=prompt, tokens=6)
    # 512 is a rung; a window may reach further back.
    assert warm.finished.cached_tokens in ({0} if shared == 300 else {512, 600})
    assert warm.tokens == cold.tokens


def test_one_checkpoint_serves_again_and_again(
    target: MlxLmTarget, difference: Callable
) -> None:
    state = read(target, LONG[:40], LONG[40:70])
    state.keep()
    for end in (LONG[70:], (5, 6, 7), LONG[70:]):
        target.forward(state, mx.array(end), rows=len(end))
        straight = read(target, LONG[:40], LONG[40:70], end)
        assert difference(state, straight) == 0
        assert state.nearest(70) == 70
        state.roll_back(70)
        assert difference(state, read(target, LONG[:40], LONG[40:70])) == 0


@pytest.mark.parametrize("chunk", [1, 3, 32, 89, 90])
def test_chunk_grid_independence(
    chunk: int, target: MlxLmTarget, difference: Callable, rounding: float
) -> None:
    parts = [LONG[i : i + chunk] for i in range(0, len(LONG), chunk)]
    whole, pieces = read(target, LONG), read(target, *parts)
    single_rows = any(len(part) == 1 for part in parts)
    assert difference(whole, pieces) <= (rounding if single_rows else 0)


def test_restoring_copies_no_recurrent_state() -> None:
    target = tiny.target("qwen3_5")
    state = read(target, LONG)
    lane = state.lanes[0]
    assert isinstance(lane, LaneRecurrent)
    held = [id(array) for array in lane.arrays]
    state.keep()
    target.forward(state, mx.array(LONG), rows=0)
    assert [id(array) for array in lane.arrays] != held
    state.roll_back(len(LONG))
    assert [id(array) for array in lane.arrays] == held


@pytest.mark.parametrize("family", ["qwen3_5", "qwen3_5_moe", "qwen3_next"])
def test_a_roll_back_reads_no_weight(family: str, difference: Callable) -> None:
    target = tiny.target(family)
    ours, expected = read(target, LONG), read(target, LONG)
    for state in (ours, expected):
        target.forward(state, mx.arange(8), rows=8)
        mx.eval(state.arrays)
    expected.roll_back(len(LONG) + 5)
    mx.eval(expected.arrays)
    weights = target._model.parameters()
    target._model.update(tree_map(lambda a: mx.full(a.shape, mx.nan), weights))
    ours.roll_back(len(LONG) + 5)
    assert difference(ours, expected) == 0


@pytest.mark.parametrize("family", ["qwen3_5", "gpt_oss", "gemma4"])
def test_what_is_gone_is_refused_and_never_cut(family: str) -> None:
    target = tiny.target(family)
    state = read(target, *[LONG[i : i + 30] * 20 for i in (0, 30, 60)])
    assert state.nearest(300) == 0
    with pytest.raises(ValueError, match=r"cannot keep 300 of 1800 rows"):
        state.roll_back(300)
    assert state.length == 1800
