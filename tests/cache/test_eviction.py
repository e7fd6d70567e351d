# SPDX-License-Identifier: Apache-2.0
"""A budget in bytes that counts everything, and what makes room."""

from __future__ import annotations

from collections.abc import Callable

import mlx.core as mx

from splashpy.cache.plan import Marks
from splashpy.models.dflash2_context import DrafterContext

ANSWER = list(range(500, 510))


def prompt(number: int, length: int = 100) -> list[int]:
    return [number * 1000 + i for i in range(length)]


def context(rows: int) -> DrafterContext:
    found = DrafterContext([64])
    found.layers[0].fill([mx.zeros((1, 2, rows, 4)), mx.zeros((1, 2, rows, 4))])
    found.position = rows
    mx.eval(found.arrays)
    return found


def test_rows_states_and_drafter_contexts_are_all_counted(
    filled: Callable, reader: Callable
) -> None:
    cache = reader("hybrid").cache
    state = filled("hybrid", prompt(1))
    cache.insert(prompt(1), state, draft=context(40))
    rows, recurrent = 2 * 100 * 4, 2 * 4
    draft, tokens = 2 * 2 * 40 * 4 * 4, 100 * 4
    assert cache.nbytes == rows + recurrent + draft + tokens


def test_a_checkpoint_two_runs_share_counts_once(reader: Callable) -> None:
    asking = reader("hybrid", copied=8)
    marks = Marks(system=60)
    asking.ask(prompt(1), ANSWER, marks=marks)
    alone = asking.cache.nbytes
    asking.ask([*prompt(1, 60), 9, 9, 9], ANSWER, marks=marks)
    assert len(asking.cache.runs) == 2
    assert asking.cache.nbytes < 2 * alone


def test_many_distinct_prompts_stay_within_the_budget(
    kind: str, reader: Callable
) -> None:
    budget = 25_000
    asking = reader(kind, budget=budget)
    for number in range(40):
        asking.ask(prompt(number), ANSWER)
        assert asking.cache.nbytes <= budget
    assert len(asking.cache.runs) >= 2
    # The latest are there, the first is not.
    assert asking.cache.look_up([*prompt(39), 1]).resumed > 0
    assert asking.cache.look_up([*prompt(0), 1]).resumed == 0


def test_what_is_used_stays_longer_than_what_is_not(reader: Callable) -> None:
    asking = reader("attention", budget=25_000)
    for number in range(12):
        asking.ask(prompt(number + 1), ANSWER)
        asking.ask(prompt(0), ANSWER)
    assert asking.cache.look_up([*prompt(0), 1]).resumed > 0


def test_rungs_nobody_came_back_to_go_first(reader: Callable) -> None:
    asking = reader("hybrid", rung=16, rung_before_stable=0)
    asking.ask(prompt(1), ANSWER)
    (run,) = asking.cache.runs
    assert run.state.checkpoints == (16, 32, 48, 64, 80, 96, 99, 109)
    asking.cache.budget = asking.cache.nbytes - 1
    asking.ask([*prompt(1), *ANSWER[:-1], 3], ())
    (run,) = asking.cache.runs
    kinds = {run.places[at].kind for at in run.state.checkpoints}
    assert "rung" in kinds or len(run.state.checkpoints) < 8
    assert {"stable", "end"} <= kinds


def test_a_lost_checkpoint_is_told_and_kept_again(reader: Callable) -> None:
    asking = reader("hybrid", rung=16, rung_before_stable=0, junction=8)
    asking.ask(prompt(1), ANSWER)
    (run,) = asking.cache.runs
    for at in (16, 32, 48, 64, 80, 96):
        run.give_up(at)
    branch = [*prompt(1, 90), 5, 5, 5]
    found = asking.ask(branch, ANSWER)
    assert (found.resumed, found.reason, found.junction) == (0, "lost", 90)
    assert asking.ask([*prompt(1, 90), 6, 6, 6], ANSWER).resumed == 90


def test_a_short_prompt_does_not_drive_a_long_one_out(reader: Callable) -> None:
    asking = reader("attention", budget=18_000)
    asking.ask(prompt(1, 400), ANSWER)
    for number in range(2, 8):
        asking.ask(prompt(number, 60), ANSWER)
    assert asking.cache.look_up([*prompt(1, 400), 1]).resumed >= 400


def test_the_newest_run_stays_whatever_it_takes(kind: str, reader: Callable) -> None:
    asking = reader(kind, budget=0)
    for number in range(3):
        asking.ask(prompt(number), ANSWER)
        (run,) = asking.cache.runs
        assert asking.cache.look_up([*prompt(number), 1]).resumed > 0
        assert run.tokens[0] == number * 1000
