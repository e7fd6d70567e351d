# SPDX-License-Identifier: Apache-2.0
"""Rows of running texts against bytes of stored states."""

from __future__ import annotations

import mlx.core as mx
import pytest
import tiny
from hypothesis import given, settings
from hypothesis import strategies as st

from splashpy.cache.plan import Policy
from splashpy.cache.prefix import PrefixCache
from splashpy.engine.text_room import TextRoom

SHARE = 100  # rows of running texts
RUNS, LENGTH = 4, 50


def filled() -> PrefixCache:
    """States of some earlier requests, which take all they may."""
    cache = PrefixCache(policy=Policy(shortest=1))
    target = tiny.target()
    for first in range(RUNS):
        ids = tuple(range(50 * first, 50 * first + LENGTH))
        state = target.new_state(LENGTH)
        mx.eval(target.forward(state, mx.array(ids), rows=0).logits, state.arrays)
        cache.take(ids)
        cache.insert(ids, state)
    cache.budget = cache.nbytes
    return cache


@settings(max_examples=15)
@given(st.lists(st.integers(0, 4 * SHARE), min_size=1, max_size=12))
def test_texts_and_stored_states_never_take_more_than_both_may(rows: list[int]) -> None:
    cache = filled()
    budget = cache.nbytes
    row = budget // (RUNS * LENGTH)
    room = TextRoom(SHARE, row, cache=cache)
    for wanted in rows:
        allowed = room.allow(wanted)
        assert allowed == (wanted - SHARE <= budget // row)
        assert 0 <= cache.nbytes <= cache.budget <= budget
        if allowed:
            over = max(wanted - SHARE, 0)
            assert cache.nbytes + over * row <= budget
        assert room.fits(wanted) == (wanted <= SHARE)


def test_bytes_that_are_really_in_use_count_as_well() -> None:
    cache = filled()
    held = cache.nbytes
    used = [held]
    room = TextRoom(budget=2 * held, row_bytes=1, cache=cache, in_use=lambda: used[0])
    assert room.allow(10)
    assert cache.nbytes == held
    used[0] = 2 * held + 1
    assert room.allow(10), "a stored state makes room"
    assert 0 < cache.nbytes < held
    assert not room.allow(10, new=4 * held), "nothing could"
    assert cache.nbytes == 0


def test_memory_that_was_refused_once_is_not_expected_again() -> None:
    room = TextRoom(SHARE, 1)
    assert room.allow(SHARE)
    room.lower(60)
    assert not room.allow(61)
    assert room.allow(60)
    room.lower(80)
    assert not room.allow(61)


@pytest.mark.parametrize("room", [TextRoom(), TextRoom(cache=PrefixCache())])
def test_where_nobody_knows_what_there_is_all_is_allowed(room: TextRoom) -> None:
    assert room.fits(10**9)
    assert room.allow(10**9, new=10**9)
