# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import mlx.core as mx
from hypothesis import given
from hypothesis import strategies as st

from splashpy.drafting.drafter import DraftSampling
from splashpy.drafting.lookup import DRAFT_TOKENS, LookupDrafter, LookupState


def propose(drafter: LookupDrafter, state: LookupState, limit: int = 100) -> list[int]:
    anchor = mx.array(state.tokens[-1], dtype=mx.int32)
    return drafter.propose(state, anchor, limit, DraftSampling()).token_ids.tolist()


def after(tokens: list[int], **options: int) -> tuple[LookupDrafter, LookupState]:
    drafter = LookupDrafter(**options)
    state = drafter.new_state()
    drafter.observe(state, tokens, None, 0)
    return drafter, state


def expected(tokens: list[int]) -> list[int]:
    """Longest suffix first, most recent earlier place first, by brute force."""
    for n in (5, 4, 3, 2, 1):
        ends = [
            end for end in range(n, len(tokens)) if tokens[end - n : end] == tokens[-n:]
        ]
        if ends and (n > 2 or len(ends) == 1):
            period = len(tokens) - ends[-1]
            return [tokens[ends[-1] + i % period] for i in range(DRAFT_TOKENS)]
    return []


def test_what_followed_the_last_three_tokens_is_proposed() -> None:
    drafter, state = after([1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 2, 3])
    assert propose(drafter, state) == [4, 5, 6, 7, 8, 9]


def test_the_longest_match_wins_over_a_more_recent_shorter_one() -> None:
    drafter, state = after([9, 1, 2, 3, 50, 51, 8, 1, 2, 3, 60, 61, 9, 1, 2, 3])
    assert propose(drafter, state)[:2] == [50, 51]


def test_the_most_recent_of_equal_matches_wins() -> None:
    drafter, state = after([1, 2, 3, 50, 1, 2, 3, 60, 1, 2, 3])
    assert propose(drafter, state)[0] == 60


def test_a_gap_is_filled_with_copies_of_the_file_around_it() -> None:
    before, gap, after_gap, other = 900, 901, 902, 903
    file = list(range(10, 40))
    prompt = [other, 50, 51, before, *file[:20], after_gap, *file[20:], gap]

    for place in (file[3:6], file[22:25], [other, 50]):
        drafter, state = after(prompt)
        drafter.observe(state, place, None, len(prompt))
        follows = prompt.index(place[-1]) + 1
        copied = propose(drafter, state)
        assert copied == prompt[follows : follows + len(copied)]
        assert copied


def test_a_loop_is_copied_round_and_round() -> None:
    drafter, state = after([7, 8, 7, 8, 7, 8, 7])
    assert propose(drafter, state) == [8, 7, 8, 7, 8, 7]


def test_a_deep_match_promises_a_longer_copy() -> None:
    passage = list(range(100, 140))
    drafter, state = after([*passage, 1, *passage[:12]])
    assert propose(drafter, state) == passage[12:36]


@given(st.lists(st.integers(0, 3), min_size=1, max_size=60))
def test_the_index_finds_what_a_search_of_the_whole_text_finds(
    tokens: list[int],
) -> None:
    drafter, state = after(tokens)
    assert propose(drafter, state)[:DRAFT_TOKENS] == expected(tokens)


@given(st.lists(st.integers(0, 3), min_size=1, max_size=60), st.data())
def test_the_index_does_not_depend_on_how_the_tokens_arrived(
    tokens: list[int], data: st.DataObject
) -> None:
    cut = data.draw(st.integers(0, len(tokens)))
    whole, state = after(tokens)
    parts = LookupDrafter()
    other = parts.new_state()
    parts.observe(other, tokens[:cut], None, 0)
    parts.observe(other, tokens[cut:], None, cut)
    assert propose(whole, state) == propose(parts, other)


def test_the_token_budget_and_the_block_bound_the_proposal() -> None:
    tokens = [1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 2, 3]
    drafter, state = after(tokens)
    assert propose(drafter, state, limit=2) == [4, 5]
    assert propose(drafter, state, limit=0) == []
    small, state = after(tokens, block_size=4)
    assert propose(small, state) == [4, 5, 6]


def test_a_match_must_promise_its_price() -> None:
    drafter, state = after([1, 2, 3, 4, 5, 1, 2, 3])
    state.price = 3.1  # a match promises three tokens before anything is known
    assert propose(drafter, state) == []
    state.price = 2.9
    assert propose(drafter, state) == [4, 5, 1, 2, 3, 4]


def test_one_or_two_tokens_match_only_where_they_are_unique() -> None:
    assert propose(*after([7, 1, 2, 3, 4, 5, 6, 7])) == [1, 2, 3, 4, 5, 6]
    assert propose(*after([7, 1, 7, 2, 3, 4, 7])) == []
    assert propose(*after([7, 8, 1, 7, 8, 2, 3, 7, 8])) == []


def disappoint(drafter: LookupDrafter, rounds: int) -> list[bool]:
    """The same three tokens again and again, each time followed by something new."""
    state = drafter.new_state()
    drafter.observe(state, [1, 2, 3], None, 0)
    tried = []
    for number in range(rounds):
        drafter.observe(state, [1000 + 2 * number, 1, 2, 3], None, 0)
        tried.append(bool(propose(drafter, state)))
        drafter.observe(state, [1001 + 2 * number], None, 0)
    return tried


def test_lookup_stops_where_it_loses() -> None:
    tried = disappoint(LookupDrafter(cost=1.8), 40)
    assert tried[0]
    assert sum(tried) <= 3


def test_long_copies_that_disappoint_are_parked_and_tried_again_now_and_then() -> None:
    passage = list(range(100, 160))
    drafter = LookupDrafter(cost=1.0)
    state = drafter.new_state()
    drafter.observe(state, [*passage, 1], None, 0)
    lengths = []
    for number in range(24):
        drafter.observe(state, [500 + number, *passage[:12]], None, 0)
        drafts = propose(drafter, state)
        lengths.append(len(drafts))
        # Less than half of any draft is kept.
        drafter.observe(state, [*drafts[:2], 900 + number], None, 0)
    assert lengths[:2] == [24, 24]
    assert lengths.count(24) == 2 + 22 // 8
    assert set(lengths) == {DRAFT_TOKENS, 24}


def test_a_lookup_that_was_asked_for_never_stops() -> None:
    assert all(disappoint(LookupDrafter(cost=1.0), 40))


def test_a_match_that_was_not_drafted_from_is_judged_all_the_same() -> None:
    drafter = LookupDrafter(cost=1.8)
    passage = list(range(10, 30))
    state = drafter.new_state()
    drafter.observe(state, [*passage, 1, 2, 3, 4, 5, 6], None, 0)
    propose(drafter, state)
    for number in range(4):  # matches of three tokens disappoint
        drafter.observe(state, [3, 4, 5, 100 + number], None, 0)
    assert state.yields[3].mean < 1.8
    for token in passage * 4:  # then the text turns into a copy, token by token
        drafter.observe(state, [token], None, 0)
    drafter.observe(state, [500, *passage[:3]], None, 0)
    assert propose(drafter, state)


def test_the_repetitions_of_a_prompt_say_nothing_about_the_answer() -> None:
    _, state = after([1, 2, 3, 50, 1, 2, 3, 60, 1, 2, 3, 70] * 4)
    assert state.yields[3].matches == 1


def test_proposing_twice_gives_the_same_draft() -> None:
    drafter, state = after([1, 2, 3, 4, 1, 2, 3])
    assert propose(drafter, state) == propose(drafter, state)


def test_a_lookup_is_idle_without_a_match_that_pays_unless_it_was_asked_for() -> None:
    for tokens in ([1, 2, 3], [1, 2, 3, 9, 1, 2, 3]):
        paying, state = after(tokens, cost=1.8)
        assert paying.idle(state) is (not propose(paying, state))
        asked, state = after(tokens, cost=1.0)
        assert not asked.idle(state)
