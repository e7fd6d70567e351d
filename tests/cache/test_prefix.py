# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import Callable

import mlx.core as mx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from splashpy.cache.plan import Marks
from splashpy.cache.prefix import PrefixCache

SYSTEM = [900 + i for i in range(40)]
TURN = list(range(60))
ANSWER = list(range(500, 530))


def test_the_next_turn_takes_the_whole_state_over(
    kind: str, filled: Callable, holds: Callable
) -> None:
    cache = PrefixCache(1 << 30)
    state = filled(kind, TURN)
    cache.insert(TURN, state)
    taken = cache.take([*TURN, 90, 91])
    assert taken.state is state
    assert taken.found.resumed == 60
    assert taken.found.tier == "ram"
    holds(state, TURN)
    assert cache.runs == []  # handed out once
    assert cache.take([*TURN, 1]).state is None


def test_attention_keeps_whatever_a_branch_shares(filled: Callable) -> None:
    cache = PrefixCache(1 << 30)
    cache.insert(TURN, filled("attention", TURN))
    taken = cache.take([*TURN[:25], 90, 91])
    assert (taken.found.shared, taken.found.resumed) == (25, 25)
    assert taken.found.reason == "departs"
    assert taken.found.was == tuple(range(25, 33))


def test_the_same_prompt_again_leaves_one_token_to_compute(
    kind: str, reader: Callable
) -> None:
    ask = reader(kind).ask
    ask(TURN, ANSWER)
    found = ask(TURN, ANSWER)
    assert found.resumed == 59
    assert found.reason == "whole"


def test_a_conversation_resumes_where_its_last_answer_ended(
    kind: str, reader: Callable
) -> None:
    ask = reader(kind).ask
    prompt = [*SYSTEM, *TURN]
    ask(prompt, ANSWER)
    for turn in range(1, 6):
        grown = [*prompt, *ANSWER, 700 + turn, 701, 702]
        found = ask(grown, ANSWER)
        assert found.resumed == len(prompt) + len(ANSWER) - 1
        prompt = grown


def test_a_turn_whose_opener_is_rendered_anew_resumes_before_it(
    kind: str, reader: Callable
) -> None:
    ask = reader(kind).ask
    opener, marks = [800, 801, 802], Marks(unstable=3)
    ask([*TURN, *opener], ANSWER, marks=marks)
    again = ask([*TURN, *opener], ANSWER, marks=marks)
    assert again.resumed == (62 if kind == "attention" else 60)
    turn = ask([*TURN, *ANSWER, 1, 2, *opener], ANSWER, marks=marks)
    assert turn.resumed == 60


def test_another_conversation_resumes_after_the_system_prompt(
    kind: str, reader: Callable
) -> None:
    ask = reader(kind).ask
    marks = Marks(system=40)
    ask([*SYSTEM, *TURN], ANSWER, marks=marks)
    found = ask([*SYSTEM, 1, 2, 3, 4, 5], ANSWER, marks=marks)
    assert found.resumed == 40


def test_a_departure_is_kept_so_that_the_next_one_there_is_a_hit(
    kind: str, reader: Callable
) -> None:
    ask = reader(kind, junction=8).ask
    ask([*SYSTEM, *TURN], ANSWER)
    first = ask([*SYSTEM, *TURN[:30], 1, 2, 3], ANSWER)
    second = ask([*SYSTEM, *TURN[:30], 7, 8, 9], ANSWER)
    assert second.resumed == 70
    if kind != "attention":
        assert (first.resumed, first.shared, first.junction) == (0, 70, 70)
        assert first.reason == "unsaved"


def test_a_long_tail_stays_for_its_own_conversation(
    kind: str, reader: Callable
) -> None:
    ask = reader(kind, copied=16).ask
    marks = Marks(system=40)
    first = [*SYSTEM, *TURN]
    ask(first, ANSWER, marks=marks)
    ask([*SYSTEM, 1, 2, 3], ANSWER, marks=marks)
    turn = ask([*first, *ANSWER, 5], ANSWER, marks=marks)
    assert turn.resumed == len(first) + len(ANSWER) - 1


def test_without_room_for_copies_the_tail_is_given_up(reader: Callable) -> None:
    asking = reader("attention", budget=3000, copied=16)
    asking.ask([*SYSTEM, *TURN], ANSWER)
    asking.ask([*SYSTEM, 1, 2, 3], ANSWER)
    assert len(asking.cache.runs) == 1


def test_a_cancelled_prompt_goes_on_where_it_was_stopped(
    kind: str, reader: Callable
) -> None:
    ask = reader(kind, rung=32, rung_before_stable=0).ask
    assert ask(TURN, stop=32).resumed == 0
    assert ask(TURN, ANSWER).resumed == 32


def test_a_short_common_beginning_is_not_worth_a_hit(filled: Callable) -> None:
    cache = PrefixCache(1 << 30)
    cache.insert(TURN, filled("attention", TURN))
    found = cache.take([*TURN[:15], 99, 99]).found
    assert (found.resumed, found.shared, found.reason) == (0, 15, "short")
    assert PrefixCache(1 << 30).take(TURN).found.reason == "empty"


def test_tokens_that_do_not_describe_the_rows_are_refused(filled: Callable) -> None:
    with pytest.raises(ValueError, match="59 tokens do not describe 60 rows"):
        PrefixCache(1 << 30).insert(TURN[:-1], filled("attention", TURN))


def test_of_two_runs_that_begin_alike_the_longer_one_stays(
    kind: str, filled: Callable
) -> None:
    for first, second in ((30, 60), (60, 30), (60, 60)):
        cache = PrefixCache(1 << 30)
        for length in (first, second):
            cache.insert(TURN[:length], filled(kind, TURN[:length]))
        (run,) = cache.runs
        assert len(run) == 60
        if kind != "attention":
            assert set(run.state.checkpoints) == {first, second}


def test_a_state_taken_twice_is_two_states(
    kind: str, reader: Callable, holds: Callable
) -> None:
    asking = reader(kind, copied=8)
    asking.ask([*SYSTEM, *TURN], ANSWER, marks=Marks(system=40))
    one = asking.cache.take([*SYSTEM, 5, 5, 5]).state
    other = asking.cache.take([*SYSTEM, 6, 6, 6]).state
    assert one is not other
    for state in (one, other):
        holds(state, SYSTEM)
        for lane in state.lanes:
            if hasattr(lane, "keys"):
                lane.update_and_fetch(mx.zeros((1, 1, 3, 1)), mx.zeros((1, 1, 3, 1)))
    (run,) = asking.cache.runs
    run.state.roll_back(40)
    holds(run.state, SYSTEM)


SMALL = st.lists(st.integers(0, 2), min_size=1, max_size=40)


@settings(max_examples=60)
@given(
    kind=st.sampled_from(["attention", "window", "hybrid"]),
    asked=st.lists(
        st.tuples(SMALL, st.lists(st.integers(0, 2), max_size=12), st.integers(0, 5)),
        min_size=2,
        max_size=14,
    ),
    budget=st.sampled_from([1 << 30, 4000, 1500]),
    copied=st.sampled_from([1, 6, 100]),
)
def test_whatever_was_asked_before_a_state_holds_its_own_tokens(
    kind: str, asked: list, budget: int, copied: int, reader_class: type
) -> None:
    asking = reader_class(kind, budget, shortest=1, junction=4, rung=8, copied=copied)
    for prompt, answer, unstable in asked:
        found = asking.ask(prompt, answer, marks=Marks(unstable=unstable))
        assert found.resumed <= min(found.shared, len(prompt) - 1)
        newest = max(asking.cache.runs, key=lambda run: run.used)
        assert asking.cache.nbytes <= budget or asking.cache.runs == [newest]


@settings(max_examples=80)
@given(asked=st.lists(SMALL, min_size=1, max_size=14))
def test_the_longest_common_beginning_is_found(
    asked: list[list[int]], reader_class: type
) -> None:
    asking = reader_class("attention", 1 << 30, shortest=1, copied=1)
    stored: list[list[int]] = []
    for prompt in asked:
        longest = max((_common(prompt, other) for other in stored), default=0)
        found = asking.ask(prompt)
        assert found.shared == longest
        assert found.resumed == min(longest, len(prompt) - 1)
        stored.append(prompt)


def _common(one: list[int], other: list[int]) -> int:
    pairs = enumerate(zip(one, other, strict=False))
    return next((i for i, (a, b) in pairs if a != b), min(len(one), len(other)))
