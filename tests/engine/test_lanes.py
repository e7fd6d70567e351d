# SPDX-License-Identifier: Apache-2.0
"""Requests that run at a time, each compared with the same request alone."""

from __future__ import annotations

import itertools
import random
from dataclasses import replace
from typing import Any

import pytest
import tiny
from lanes_bench import Bench, alone, ask, cycles_alone, scripted

from splashpy.cache.prefix import PrefixCache
from splashpy.drafting.pace import FREE
from splashpy.engine import prefill
from splashpy.engine.lanes import Lanes
from splashpy.engine.request import (
    Failed,
    LookedUp,
    PrefillProgress,
    TokensCommitted,
)
from splashpy.engine.widths import Widths
from splashpy.models.target import Forward, MlxLmTarget
from splashpy.verification.sampling import SamplingParams

WARM = SamplingParams(temperature=0.9, top_k=20)


@pytest.fixture(scope="module", params=["llama", "qwen3_5"])
def target(request: pytest.FixtureRequest) -> MlxLmTarget:
    return tiny.target(request.param)


@pytest.fixture(scope="module")
def llama() -> MlxLmTarget:
    return tiny.target("llama")


def test_texts_of_any_length_and_sampling_equal_their_solo_runs(
    target: MlxLmTarget,
) -> None:
    requests = [
        ask("greedy", range(5)),
        ask("seeded", range(40, 80), sampling=WARM, seeded=True),
        ask("drawn", range(100, 103), sampling=WARM, seed=9, max_new_tokens=7),
        ask("penalties", [7] * 30, sampling=SamplingParams(repetition_penalty=1.3)),
    ]
    bench = Bench(target)
    for request in requests:
        bench.admit(request)
    bench.finish()
    for request in requests:
        assert bench.tokens(request.id) == alone(target, request)


def test_log_probabilities_of_shared_passes_are_those_of_solo_runs(
    target: MlxLmTarget,
) -> None:
    penalties = SamplingParams(temperature=0.8, repetition_penalty=1.3)
    requests = [
        ask("greedy", range(9), logprobs=3),
        ask("seeded", range(40, 70), sampling=WARM, seeded=True, logprobs=0),
        ask("penalties", [7] * 20, sampling=penalties, seeded=True, logprobs=5),
    ]
    bench = Bench(target)
    for request in requests:
        bench.admit(request, scripted(target, request, itertools.cycle([2, 0, 3, 1])))
    bench.finish()
    for request in requests:
        solo = cycles_alone(target, request)
        ours, theirs = (
            [entry for cycle in cycles for entry in cycle.logprobs]
            for cycles in (bench.cycles(request.id), solo)
        )
        assert len(ours) == 20
        assert ours == theirs


def test_every_pair_of_accept_lengths_leaves_both_texts_alone(
    target: MlxLmTarget,
) -> None:
    pairs = list(itertools.product(range(4), repeat=2))
    random.Random(1).shuffle(pairs)
    requests = [ask("a", range(11), max_new_tokens=60)]
    requests += [ask("b", range(50, 70), max_new_tokens=60)]
    bench = Bench(target)
    for request, lengths in zip(requests, zip(*pairs, strict=True), strict=True):
        bench.admit(request, scripted(target, request, itertools.cycle(lengths)))
    bench.finish()
    seen = {}
    for request in requests:
        assert bench.tokens(request.id) == alone(target, request)
        cycles = [e for e in bench.events if isinstance(e, TokensCommitted)]
        seen[request.id] = [e.accepted for e in cycles if e.id == request.id][1:]
    assert set(pairs) <= set(zip(*seen.values(), strict=False))


def test_a_text_joins_and_leaves_while_others_go_on(target: MlxLmTarget) -> None:
    first = ask("first", range(9), max_new_tokens=40)
    later = ask("later", range(60, 90), max_new_tokens=6)
    bench = Bench(target)
    bench.admit(first, scripted(target, first, itertools.cycle([2, 0, 3])))
    while len(bench.tokens("first")) < 8:
        bench.step()
    bench.admit(later)
    bench.finish()
    for request in (first, later):
        assert bench.tokens(request.id) == alone(target, request)


def test_one_cancelled_text_leaves_the_others_unchanged(target: MlxLmTarget) -> None:
    requests = [ask(name, range(3 + i, 20 + i)) for i, name in enumerate("abc")]
    bench = Bench(target)
    for request in requests:
        bench.admit(request)
    while len(bench.tokens("b")) < 4:
        bench.step()
    bench.gone.add("b")
    bench.finish()
    assert bench.end("b").reason == "cancelled"
    assert len(bench.tokens("b")) <= 6
    for request in (requests[0], requests[2]):
        assert bench.tokens(request.id) == alone(target, request)


def test_a_request_is_cancelled_before_it_begins_and_while_it_is_read(
    llama: MlxLmTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prefill, "FIRST_CHUNK", 32)
    bench = Bench(llama)
    bench.admit(ask("reading", range(200)))
    bench.admit(ask("unbegun", range(201)))
    while not any(isinstance(e, PrefillProgress) for e in bench.events):
        bench.step()
    bench.gone |= {"reading", "unbegun"}
    bench.finish()
    for name in ("reading", "unbegun"):
        assert bench.end(name).reason == "cancelled"
        assert bench.tokens(name) == []


def test_nan_in_one_text_ends_that_text_only(
    llama: MlxLmTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    requests = [ask(name, range(2 + i, 12 + i)) for i, name in enumerate("abc")]
    bench = Bench(llama, cache=PrefixCache())
    tasks = [bench.admit(request) for request in requests]
    together = llama.forward_together

    def poisoned(states: Any, token_ids: Any) -> list[Forward]:
        poor = tasks[1].sequence
        bad = poor and poor.state
        nan = float("nan")
        return [
            replace(forward, logits=forward.logits * nan) if state is bad else forward
            for state, forward in zip(states, together(states, token_ids), strict=True)
        ]

    monkeypatch.setattr(llama, "forward_together", poisoned)
    bench.finish()
    failed = bench.end("b")
    assert isinstance(failed, Failed)
    assert failed.error.code == "E-NAN"
    assert not failed.fatal
    monkeypatch.undo()
    for request in (requests[0], requests[2]):
        assert bench.tokens(request.id) == alone(llama, request)
    assert bench.cache is not None
    stored = [tuple(run.tokens[:10]) for run in bench.cache.runs]
    assert requests[1].token_ids not in stored


def test_a_target_that_cannot_share_passes_writes_texts_in_turn(
    llama: MlxLmTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(llama, "shares", lambda: False)
    requests = [ask(name, range(i, 15 + i)) for i, name in enumerate("ab")]
    bench = Bench(llama)
    for request in requests:
        bench.admit(request)
    bench.finish()
    written = [e.id for e in bench.events if isinstance(e, TokensCommitted)]
    assert "".join(written).count("ab") > 10
    for request in requests:
        assert bench.tokens(request.id) == alone(llama, request)


def test_short_prompts_pass_a_long_one_three_times_in_a_row(
    llama: MlxLmTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prefill, "FIRST_CHUNK", 32)
    monkeypatch.setattr(prefill, "next_chunk", lambda rate: 32)
    bench = Bench(llama, most=9)
    bench.admit(ask("long", range(200), prefill_only=True))
    for index in range(6):
        bench.admit(ask(f"s{index}", [index] * 40, prefill_only=True))
    bench.finish()
    begun = [e.id for e in bench.events if isinstance(e, PrefillProgress)]
    assert begun[0] != "long"
    runs = [len(list(g)) for name, g in itertools.groupby(begun, "long".__eq__)]
    others = runs[::2]  # the first group belongs to the short ones
    assert max(others[:-1]) <= 3


def test_a_prompt_that_begins_as_one_being_read_waits_and_takes_a_copy(
    target: MlxLmTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prefill, "FIRST_CHUNK", 64)
    system = [i * 13 % 250 for i in range(300)]
    one, other = ask("one", [*system, 1, 2]), ask("other", [*system, 9, 9, 9])
    bench = Bench(target, cache=PrefixCache())
    bench.admit(one)
    bench.admit(other)
    bench.finish()
    for request in (one, other):
        assert bench.tokens(request.id) == alone(target, request)
    looked = [e for e in bench.events if isinstance(e, LookedUp)]
    assert [e.id for e in looked] == ["one", "other"]
    if bench.cache and bench.cache.runs[0].state.cut_anywhere:
        assert looked[1].found.resumed == 300


def test_no_more_requests_run_than_allowed_and_than_fit(llama: MlxLmTarget) -> None:
    lanes = Lanes(llama, Widths(FREE), most=2, rows=100)
    assert lanes.takes(ask("huge", range(200)))  # alone it was planned for
    bench = Bench(llama, most=2)
    bench.lanes = lanes
    bench.admit(ask("a", range(40)))
    assert not lanes.takes(ask("b", range(30)))
    assert lanes.takes(ask("c", range(20)))
    bench.admit(ask("c", range(20)))
    assert not lanes.takes(ask("d", range(1)))


def test_answers_go_on_while_a_long_prompt_is_read(
    llama: MlxLmTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prefill, "FIRST_CHUNK", 32)
    monkeypatch.setattr(prefill, "next_chunk", lambda rate: 32)
    bench = Bench(llama)
    bench.admit(ask("writing", range(5), max_new_tokens=60))
    while not bench.tokens("writing"):
        bench.step()
    bench.admit(ask("reading", range(250)))
    bench.finish()
    kinds = [
        "r" if isinstance(e, PrefillProgress) else "w"
        for e in bench.events
        if isinstance(e, PrefillProgress | TokensCommitted)
    ]
    assert "rwr" in "".join(key for key, _ in itertools.groupby(kinds))
