# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import mlx.core as mx
import pytest
import tiny

from splashpy.cache.prefix import MIN_REUSE, PrefixCache
from splashpy.models.state import TargetState

TOKENS = list(range(40))


@pytest.fixture
def state() -> TargetState:
    target = tiny.target()
    state = target.new_state(64)
    target.forward(state, mx.array(TOKENS), rows=0)
    return state


def test_the_next_turn_takes_the_whole_state_over(state: TargetState) -> None:
    cache = PrefixCache()
    cache.insert(TOKENS, state)
    hit = cache.take([*TOKENS, 90, 91])
    assert hit is not None
    assert hit.length == 40
    assert hit.state is state


def test_a_branch_keeps_what_it_shares(state: TargetState) -> None:
    cache = PrefixCache()
    cache.insert(TOKENS, state)
    hit = cache.take([*TOKENS[:25], 90, 91])
    assert hit is not None
    assert hit.length == hit.state.length == 25


def test_the_same_prompt_again_leaves_one_token_to_compute(state: TargetState) -> None:
    cache = PrefixCache()
    cache.insert(TOKENS, state)
    hit = cache.take(TOKENS)
    assert hit is not None
    assert hit.length == 39


def test_a_short_common_beginning_is_not_worth_a_hit(state: TargetState) -> None:
    cache = PrefixCache()
    cache.insert(TOKENS, state)
    assert cache.take([*TOKENS[: MIN_REUSE - 1], 99, 99]) is None


def test_a_state_is_handed_out_once(state: TargetState) -> None:
    cache = PrefixCache()
    cache.insert(TOKENS, state)
    assert cache.take([*TOKENS, 1]) is not None
    assert cache.take([*TOKENS, 1]) is None
    assert cache.num_tokens == 0


def test_tokens_that_do_not_describe_the_rows_are_refused(state: TargetState) -> None:
    with pytest.raises(ValueError, match="39 tokens do not describe 40 rows"):
        PrefixCache().insert(TOKENS[:-1], state)
