# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import itertools
from collections.abc import Callable

import mlx.core as mx
import pytest
import tiny
from hypothesis import given, settings
from hypothesis import strategies as st

from splashpy.cache.prefix import PrefixCache
from splashpy.drafting.dflash2 import DFlash2Drafter
from splashpy.drafting.lookup import LookupDrafter
from splashpy.engine import cycle, prefill
from splashpy.errors import ContextLengthError, ModelResultError
from splashpy.models.state import TargetState
from splashpy.models.target import Forward, Target
from splashpy.verification.sampling import SamplingParams

PROMPT = tuple(range(20))

SAMPLINGS = {
    "greedy": SamplingParams(),
    "penalties": SamplingParams(
        repetition_penalty=1.3, presence_penalty=0.4, frequency_penalty=0.2
    ),
    "window": SamplingParams(repetition_penalty=1.5, penalty_window=5),
    "bias": SamplingParams(logit_bias=((65, -3.0), (7, 2.0))),
    "seeded": SamplingParams(temperature=1.0),
    "truncated": SamplingParams(temperature=0.8, top_k=20, top_p=0.9, min_p=0.02),
    "seeded penalties": SamplingParams(
        temperature=0.7, frequency_penalty=0.6, penalty_window=9
    ),
}


@pytest.mark.parametrize("name", SAMPLINGS)
def test_drafts_of_every_length_in_any_order_change_nothing(
    name: str, target: Target, run: Callable
) -> None:
    sampling = SAMPLINGS[name]
    plain = run(target, sampling=sampling, max_new_tokens=60).tokens
    assert len(plain) == 60
    forced: set[int] = set()

    @settings(max_examples=12)
    @given(st.permutations(range(8)))
    def check(order: list[int]) -> None:
        drafter = tiny.ScriptedDrafter(plain, len(PROMPT), itertools.cycle(order))
        drafted = run(target, drafter, sampling=sampling, max_new_tokens=60)
        assert drafted.tokens == plain
        forced.update(event.accepted for event in drafted.cycles)

    check()
    assert forced == set(range(8))


@pytest.mark.parametrize("cost", [1.0, 1.5], ids=["always", "where it pays"])
@pytest.mark.parametrize("name", SAMPLINGS)
def test_lookup_changes_nothing(
    name: str, cost: float, target: Target, run: Callable
) -> None:
    prompt = PROMPT * 3
    sampling = SAMPLINGS[name]
    plain = run(target, prompt=prompt, sampling=sampling).tokens
    lookup = LookupDrafter(cost=cost)
    drafted = run(target, lookup, prompt=prompt, sampling=sampling)
    assert drafted.tokens == plain


def test_lookup_drafts_where_the_text_repeats(target: Target, run: Callable) -> None:
    pushed = SamplingParams(logit_bias=((5, 100.0),))
    drafted = run(target, LookupDrafter(), sampling=pushed)
    assert drafted.tokens == [5] * 40
    assert sum(event.accepted for event in drafted.cycles) > 20
    assert {s for event in drafted.cycles for s in event.sources} == {"t", "l"}


def test_a_seed_gives_the_same_text_whatever_came_between(
    target: Target, run: Callable
) -> None:
    sampling = SamplingParams(temperature=1.0)
    first = run(target, sampling=sampling, seed=0).tokens
    run(target, sampling=sampling, seed=5, prompt=(3, 1, 4))
    mx.random.seed(99)
    assert run(target, sampling=sampling, seed=0).tokens == first
    assert run(target, sampling=sampling, seed=1).tokens != first


def test_sampling_leaves_the_global_generator_alone(
    target: Target, run: Callable
) -> None:
    mx.random.seed(4)
    expected = mx.random.uniform().item()
    mx.random.seed(4)
    run(target, sampling=SamplingParams(temperature=1.0))
    assert mx.random.uniform().item() == expected


@pytest.mark.parametrize("budget", [1, 2, 3, 7, 8, 9, 20])
def test_the_budget_is_met_exactly(budget: int, target: Target, run: Callable) -> None:
    plain = run(target, max_new_tokens=40).tokens
    drafter = tiny.ScriptedDrafter(plain, len(PROMPT), itertools.repeat(7))
    for outcome in (
        run(target, max_new_tokens=budget),
        run(target, drafter, max_new_tokens=budget),
    ):
        assert outcome.tokens == plain[:budget]
        assert outcome.finished.reason == "length"


def test_no_verify_pass_is_wider_than_the_budget_needs(
    target: Target, run: Callable
) -> None:
    plain = run(target).tokens
    drafter = tiny.ScriptedDrafter(plain, len(PROMPT), itertools.repeat(7))
    outcome = run(target, drafter, max_new_tokens=10)
    assert [event.drafted for event in outcome.cycles] == [0, 7, 0]


@pytest.mark.parametrize("length", range(8))
def test_a_stop_token_inside_a_draft_ends_the_answer_there(
    length: int, target: Target, run: Callable
) -> None:
    plain = run(target).tokens
    stop = plain[5]
    expected = plain[: plain.index(stop) + 1]
    drafter = tiny.ScriptedDrafter(plain, len(PROMPT), itertools.repeat(length))
    cache = PrefixCache()
    outcome = run(target, drafter, stop_token_ids=frozenset([stop, 999]), cache=cache)
    assert outcome.tokens == expected
    assert outcome.finished.reason == "stop"
    # The stop token has no row, and nothing after it has one either.
    assert cache.num_tokens == len(PROMPT) + len(expected) - 1


@pytest.mark.parametrize("drafts", [False, True])
def test_the_state_left_behind_equals_a_fresh_prefill(
    drafts: bool,
    target: Target,
    run: Callable,
) -> None:
    plain = run(target).tokens
    lengths = itertools.cycle([0, 7, 3, 1])
    drafter = tiny.ScriptedDrafter(plain, len(PROMPT), lengths) if drafts else None
    cache = PrefixCache()
    stops = frozenset([plain[17]])
    run(target, drafter, cache=cache, stop_token_ids=stops)
    follow_up = (*PROMPT, *plain[:17], 3, 1, 4)
    warm = run(target, prompt=follow_up, cache=cache)
    cold = run(target, prompt=follow_up)
    assert warm.finished.cached_tokens >= len(PROMPT) + plain.index(plain[17])
    assert warm.tokens == cold.tokens


def test_a_cancelled_answer_leaves_a_true_prefix_behind(
    target: Target, run: Callable
) -> None:
    calls = itertools.count()
    cache = PrefixCache()
    outcome = run(target, cache=cache, cancelled=lambda: next(calls) > 8)
    assert outcome.finished.reason == "cancelled"
    assert 0 < len(outcome.tokens) < 40
    follow_up = (*PROMPT, *outcome.tokens, 9, 9)
    warm = run(target, prompt=follow_up, cache=cache)
    assert warm.finished.cached_tokens == len(PROMPT) + len(outcome.tokens) - 1
    assert warm.tokens == run(target, prompt=follow_up).tokens


def test_a_cancelled_prefill_keeps_what_it_read(
    target: Target, run: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prefill, "FIRST_CHUNK", 32)
    monkeypatch.setattr(prefill, "next_chunk", lambda rate: 32)
    prompt = tuple(i % 250 for i in range(200))
    calls = itertools.count()
    cache = PrefixCache()
    outcome = run(
        target, prompt=prompt, cache=cache, cancelled=lambda: next(calls) == 2
    )
    assert outcome.tokens == []
    assert outcome.finished.reason == "cancelled"
    assert cache.num_tokens == 64
    warm = run(target, prompt=prompt, cache=cache)
    assert warm.finished.cached_tokens == 64
    assert warm.tokens == run(target, prompt=prompt).tokens


@pytest.mark.parametrize("chunk", [1, 3, 32, 199, 200, 256])
def test_any_chunking_of_the_prompt_gives_the_same_answer(
    chunk: int, target: Target, run: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    prompt = tuple(i % 250 for i in range(200))
    expected = run(target, prompt=prompt).tokens
    monkeypatch.setattr(prefill, "FIRST_CHUNK", chunk)
    monkeypatch.setattr(prefill, "next_chunk", lambda rate: chunk)
    outcome = run(target, prompt=prompt)
    assert outcome.tokens == expected
    processed = [e.processed for e in outcome.events if hasattr(e, "processed")]
    assert processed == [*range(0, 200, chunk), 200]


def test_the_next_chunk_takes_about_a_second() -> None:
    assert prefill.next_chunk(10.0) == prefill.SMALLEST_CHUNK
    assert prefill.next_chunk(371.0) == 256
    assert prefill.next_chunk(1e6) == prefill.LARGEST_CHUNK


@pytest.mark.parametrize("length", [1, 2, 11])
def test_the_shortest_prompts_are_answered(
    length: int, target: Target, run: Callable
) -> None:
    assert len(run(target, prompt=PROMPT[:length], max_new_tokens=3).tokens) == 3


def test_a_full_context_ends_the_answer_and_says_so(
    target: Target, run: Callable
) -> None:
    prompt = tuple(i % 250 for i in range(508))
    outcome = run(target, prompt=prompt, max_new_tokens=None)
    assert len(outcome.tokens) == 4
    assert outcome.finished.reason == "context_full"


def test_a_prompt_that_fills_the_context_is_refused_with_numbers(
    target: Target, run: Callable
) -> None:
    with pytest.raises(ContextLengthError, match="512 tokens, the context holds 512"):
        run(target, prompt=tuple(i % 250 for i in range(512)))


def test_a_prompt_longer_than_the_context_cannot_be_read_either(
    target: Target, run: Callable
) -> None:
    with pytest.raises(ContextLengthError, match="513 tokens, the context holds 512"):
        run(target, prompt=tuple(i % 250 for i in range(513)), prefill_only=True)
    run(target, prompt=tuple(i % 250 for i in range(512)), prefill_only=True)


def test_reading_only_the_prompt_answers_nothing(target: Target, run: Callable) -> None:
    cache = PrefixCache()
    outcome = run(target, prefill_only=True, cache=cache)
    assert outcome.tokens == []
    assert outcome.finished.reason == "stop"
    assert cache.num_tokens == len(PROMPT)


def test_features_of_every_cached_row_reach_the_drafter_once(run: Callable) -> None:
    target = tiny.target()
    plain = run(target).tokens
    target.tap((0, 2))
    drafter = tiny.ScriptedDrafter(
        plain, len(PROMPT), itertools.cycle([0, 3, 7]), feature_layers=(0, 2)
    )
    outcome = run(target, drafter)
    starts = [start for start, _ in drafter.rows]
    ends = [start + count for start, count in drafter.rows]
    assert starts == [0, *ends[:-1]]
    assert ends[-1] == len(PROMPT) + len(outcome.tokens) - 1


class Broken:
    """A target whose logits turn into NaN after some passes."""

    def __init__(self, target: Target, after: int):
        self.target, self.facts, self.left = target, target.facts, after

    def new_state(self, capacity: int) -> TargetState:
        return self.target.new_state(capacity)

    def forward(self, state: TargetState, token_ids: mx.array, *, rows: int) -> Forward:
        forward = self.target.forward(state, token_ids, rows=rows)
        self.left -= 1
        logits = forward.logits * (float("nan") if self.left < 0 else 1.0)
        return Forward(logits, forward.features)


@pytest.mark.parametrize("after", [0, 1, 5])
def test_nan_fails_the_request_and_leaves_nothing_in_the_cache(
    after: int, target: Target, run: Callable
) -> None:
    cache = PrefixCache()
    with pytest.raises(ModelResultError, match="NaN"):
        run(Broken(target, after), cache=cache)
    assert cache.num_tokens == 0
    assert len(run(target, cache=cache).tokens) == 40


def test_nan_after_the_first_disagreement_decides_nothing(
    target: Target, run: Callable
) -> None:
    plain = run(target).tokens

    class PoisonedTail(Broken):
        def forward(
            self, state: TargetState, token_ids: mx.array, *, rows: int
        ) -> Forward:
            forward = self.target.forward(state, token_ids, rows=rows)
            poison = mx.where(mx.arange(rows)[:, None] > 1, float("nan"), 0.0)
            return Forward(forward.logits + poison, forward.features)

    # One token of every draft is right, so rows 0 and 1 decide.
    drafter = tiny.ScriptedDrafter(plain, len(PROMPT), itertools.repeat(1))
    assert run(PoisonedTail(target, 0), drafter).tokens == plain


def test_a_target_may_write_the_drafters_mask_token(run: Callable) -> None:
    target, mask = tiny.target(), 259
    pushed = SamplingParams(logit_bias=((mask, 1000.0),))
    drafter = DFlash2Drafter(tiny.drafter_network(), target)
    target.tap(drafter.feature_layers)
    cache = PrefixCache()
    outcome = run(target, drafter, sampling=pushed, cache=cache)
    assert outcome.tokens == [mask] * 40
    found = cache.take([*PROMPT, *[mask] * 40, 1]).found
    assert found.resumed == len(PROMPT) + 39


@pytest.mark.parametrize("drafts", [False, True])
def test_a_cycle_waits_for_the_device_once(
    drafts: bool,
    target: Target,
    run: Callable,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plain = run(target).tokens
    waits: list[str] = []
    real = mx.eval
    monkeypatch.setattr(mx, "eval", lambda *a: (waits.append("eval"), real(*a))[1])

    decide = cycle.decide

    class Decision:
        """The packed decision; reading it is the synchronisation."""

        def __init__(self, array: mx.array):
            self.array = array

        def tolist(self) -> list[int]:
            waits.append("read")
            return self.array.tolist()

        def __getitem__(self, index: int) -> mx.array:
            return self.array[index]

    monkeypatch.setattr(cycle, "decide", lambda *a: Decision(decide(*a)))
    monkeypatch.setattr(mx, "async_eval", lambda *a: None)
    lengths = itertools.cycle([0, 7, 3])
    drafter = tiny.ScriptedDrafter(plain, len(PROMPT), lengths) if drafts else None
    outcome = run(target, drafter)
    assert outcome.tokens == plain
    assert waits.count("read") == len(outcome.cycles) - 1
    assert waits.count("eval") == 1, "prefill evaluates one chunk, cycles nothing"


def test_plain_decoding_keeps_one_token_in_flight(
    target: Target, run: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    order: list[str] = []
    from splashpy.engine import task  # noqa: PLC0415 - patched below

    launch, settle = task.launch, task.settle
    monkeypatch.setattr(
        task, "launch", lambda *a: (order.append("launch"), launch(*a))[1]
    )
    monkeypatch.setattr(
        task, "settle", lambda *a: (order.append("settle"), settle(*a))[1]
    )
    run(target, max_new_tokens=5)
    assert order == ["launch", "launch", "settle", "launch", "settle", "launch",
                     "settle", "settle"]  # fmt: skip


def test_memory_does_not_grow_from_request_to_request(
    target: Target, run: Callable
) -> None:
    cache = PrefixCache()
    sizes = []
    for index in range(12):
        run(target, prompt=(*PROMPT, index), cache=cache, max_new_tokens=10)
        sizes.append(mx.get_active_memory())
    assert max(sizes[4:]) <= sizes[3] + 4096
