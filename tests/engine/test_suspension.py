# SPDX-License-Identifier: Apache-2.0
"""Texts that are set aside where memory is refused, and come out as if alone."""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest
import tiny
from hypothesis import given, settings
from hypothesis import strategies as st
from lanes_bench import Bench, alone, ask, scripted

from splashpy.cache.plan import Policy
from splashpy.cache.prefix import PrefixCache
from splashpy.dialogue.grammars import Grammars
from splashpy.dialogue.tokenizer import Tokenizer
from splashpy.drafting.combined import CombinedDrafter
from splashpy.drafting.dflash2 import DFlash2Drafter
from splashpy.drafting.drafter import Drafter
from splashpy.drafting.lookup import LookupDrafter
from splashpy.drafting.plain import PlainDrafter
from splashpy.engine import accounts, lanes, prefill, reuse
from splashpy.engine.generation import generate
from splashpy.engine.memory_ledger import MemoryLedger
from splashpy.engine.request import (
    Failed,
    Finished,
    GenerationRequest,
    PrefillProgress,
    SetAside,
    TokensCommitted,
)
from splashpy.errors import ShortageError
from splashpy.models import attention_lanes
from splashpy.models.target import Forward, MlxLmTarget
from splashpy.protocol import Constraint
from splashpy.verification.grammar import Grammar
from splashpy.verification.sampling import SamplingParams

REFUSAL = "[malloc] Unable to allocate 1 bytes."


@pytest.fixture(scope="module", params=["llama", "qwen3_5", "gemma4"])
def target(request: pytest.FixtureRequest) -> MlxLmTarget:
    return tiny.target(request.param)


@pytest.fixture(scope="module")
def llama() -> MlxLmTarget:
    return tiny.target("llama")


@pytest.fixture(scope="module")
def grammar(tmp_path_factory: pytest.TempPathFactory) -> Grammar:
    folder: Path = tmp_path_factory.mktemp("tokenizer")
    tiny.write_tokenizer(folder)
    grammars = Grammars(Tokenizer.from_directory(folder))
    schema = {"type": "array", "items": {"type": "integer"}, "minItems": 9}
    return grammars.compile(Constraint(kind="json_schema", text=json.dumps(schema)))


@pytest.fixture
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prefill, "FIRST_CHUNK", 16)
    monkeypatch.setattr(prefill, "next_chunk", lambda rate: 16)


def all_kinds(grammar: Grammar) -> list[GenerationRequest]:
    """Texts of every kind of decision."""
    warm = SamplingParams(temperature=0.9, top_k=30)
    penalties = SamplingParams(
        temperature=0.8, repetition_penalty=1.3, frequency_penalty=0.4
    )
    window = SamplingParams(presence_penalty=0.7, penalty_window=9)
    return [
        ask("greedy", range(40)),
        ask("window", range(100, 150), sampling=window),
        ask("seeded", [5, 6, 7] * 12, sampling=warm, seeded=True),
        ask("penalties", range(60, 95), sampling=penalties, seeded=True, seed=8),
        ask("grammar", range(30, 70), sampling=warm, seeded=True, grammar=grammar),
        ask("told", range(200, 240), logprobs=2, sampling=warm, seeded=True),
    ]


def texts(names: str) -> list[GenerationRequest]:
    """Short prompts with answers that outgrow a small reserve."""
    return [
        ask(name, range(i, 10 + i), max_new_tokens=40) for i, name in enumerate(names)
    ]


def drafters(target: MlxLmTarget) -> Iterator[Drafter]:
    network = DFlash2Drafter(tiny.drafter_network(), target)
    target.tap(network.feature_layers)
    return itertools.cycle(
        [CombinedDrafter(LookupDrafter(), network), PlainDrafter(), LookupDrafter()]
    )


@pytest.mark.parametrize("stored", [False, True], ids=["from nothing", "from cache"])
@pytest.mark.usefixtures("small_chunks")
def test_texts_set_aside_at_any_moment_come_out_as_alone(
    target: MlxLmTarget, grammar: Grammar, *, stored: bool
) -> None:
    draw = random.Random(4)
    kinds = drafters(target)
    requests = all_kinds(grammar)
    expected = {request.id: alone(target, request) for request in requests}
    cache = PrefixCache(policy=Policy(rung=16)) if stored else None
    ticks = itertools.count().__next__  # so that reading and writing alternate
    bench = Bench(target, most=6, cache=cache, clock=ticks)
    for request in requests:
        bench.admit(request, next(kinds))
    phases: set[str] = set()
    while bench.lanes.busy:
        bench.step()
        before = bench.lanes.phases()
        if draw.random() < (0.5 if set(before) == {"decode"} else 0.15):
            bench.events += bench.lanes.suspend()
            phases |= set(before - bench.lanes.phases())
    assert phases >= {"prefill", "decode"}
    for request in requests:
        assert bench.tokens(request.id) == expected[request.id], request.id
        assert isinstance(bench.end(request.id), Finished)
        read = [
            event.processed
            for event in bench.events
            if isinstance(event, PrefillProgress) and event.id == request.id
        ]
        assert read == sorted(read)
        assert read[-1] == len(request.token_ids)


@pytest.mark.usefixtures("small_chunks")
def test_what_was_told_of_a_prompt_is_not_told_again(llama: MlxLmTarget) -> None:
    request = ask("ranked", range(70), prompt_logprobs=1, logprobs=1)
    plain = PlainDrafter()
    solo = list(generate(request, llama, plain, None, cancelled=lambda: False))
    bench = Bench(llama)
    bench.admit(ask("first", range(100, 104), max_new_tokens=60))
    bench.admit(request)
    for _ in range(200):
        bench.step()
        bench.events += bench.lanes.suspend()
    bench.finish()
    found = []
    for events in (solo, bench.events):
        own = [event for event in events if getattr(event, "id", "") == "ranked"]
        kinds = (PrefillProgress, TokensCommitted)
        told = [e.logprobs for e in own if isinstance(e, kinds)]
        found.append([entry for entries in told for entry in entries])
    assert found[0] == found[1]
    assert any(isinstance(event, SetAside) for event in bench.events)


def ledger_beside(cache: PrefixCache) -> MemoryLedger:
    """A ledger that may take what is stored."""

    ledger = MemoryLedger()
    ledger.measure("runs", lambda: cache.nbytes)
    ledger.offer("stored", lambda missing: accounts._drop_stored(cache, missing))
    return ledger


def test_texts_that_outgrow_their_share_take_turns(
    llama: MlxLmTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lanes, "_RESERVE", 4)
    monkeypatch.setattr(lanes, "_ROOM", 2)
    monkeypatch.setattr(reuse, "_RESERVE", 4)
    monkeypatch.setattr(attention_lanes, "_GROWTH_ROWS", 1)
    requests = texts("abc")
    ledger = MemoryLedger(70 * llama.facts.kv_bytes_per_token)
    bench = Bench(llama, ledger=ledger, rows=70)
    for request in requests:
        assert bench.lanes.takes(request)
        bench.admit(request)
    seen: list[tuple[str, ...]] = []
    while bench.lanes.busy:
        bench.step()
        seen.append(tuple(sorted(bench.lanes.phases().elements())))
        held = [t.sequence.state.length for t in bench.lanes._running if t.sequence]
        assert sum(held) <= 70 or len(held) == 1
        if "suspended" in seen[-1]:
            assert not bench.lanes.takes(ask("new", range(1), max_new_tokens=1))
    assert ("decode", "suspended", "suspended") in seen
    order = [event.id for event in bench.events if isinstance(event, SetAside)]
    assert order[:2] == ["c", "b"]
    ends = [event.id for event in bench.events if isinstance(event, Finished)]
    assert ends == ["a", "b", "c"]
    for request in requests:
        assert bench.tokens(request.id) == alone(llama, request)


def test_stored_states_go_before_a_running_text_does(
    llama: MlxLmTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lanes, "_RESERVE", 4)
    cache = PrefixCache(policy=Policy(shortest=4))
    ledger = ledger_beside(cache)
    bench = Bench(llama, cache=cache, ledger=ledger)
    for first in (200, 210, 220):
        bench.admit(ask(f"old {first}", range(first, first + 40), max_new_tokens=2))
        bench.finish()
    row, held = cache.nbytes // cache.num_tokens, cache.num_tokens
    ledger.budget = cache.nbytes + 30 * row
    requests = texts("ab")
    for request in requests:
        bench.admit(request)
    while all(len(bench.tokens(request.id)) < 25 for request in requests):
        bench.step()
    assert cache.num_tokens < held
    assert not any(isinstance(event, SetAside) for event in bench.events)
    bench.finish()
    for request in requests:
        assert bench.tokens(request.id) == alone(llama, request)


def test_a_text_the_ledger_has_nothing_for_is_set_aside_and_goes_on_later(
    llama: MlxLmTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Buffers begin with 34 rows and grow by 256; there are rows for one that grew."""
    monkeypatch.setattr(reuse, "_RESERVE", 3)
    ledger = MemoryLedger(400 * llama.facts.kv_bytes_per_token)
    bench = Bench(llama, ledger=ledger)
    requests = [ask(name, range(30), max_new_tokens=40) for name in "ab"]
    for request in requests:
        bench.admit(request)
    bench.finish()
    assert [e.id for e in bench.events if isinstance(e, SetAside)] == ["b"]
    assert [e.id for e in bench.events if isinstance(e, Finished)] == ["a", "b"]
    for request in requests:
        assert bench.tokens(request.id) == alone(llama, request)
    assert ledger.held["lanes"] == 0
    assert ledger.report().refused == 1


@pytest.mark.parametrize("answer", range(7, 11))
def test_a_text_that_is_refused_goes_on_whenever_the_other_one_ends(
    llama: MlxLmTarget, monkeypatch: pytest.MonkeyPatch, answer: int
) -> None:
    """Both grow when they have written some, with memory for one that has grown."""
    monkeypatch.setattr(reuse, "_RESERVE", 3)
    ledger = MemoryLedger(400 * llama.facts.kv_bytes_per_token)
    ticks = itertools.count().__next__  # so that reading and writing alternate
    bench = Bench(llama, ledger=ledger, clock=ticks)
    requests = [
        ask("ends", range(30), max_new_tokens=answer),
        ask("goes on", range(40, 70), max_new_tokens=40),
    ]
    for request in requests:
        bench.admit(request)
    bench.finish()
    for request in requests:
        assert bench.tokens(request.id) == alone(llama, request)


def test_a_text_alone_that_the_ledger_has_nothing_for_fails_with_the_numbers(
    llama: MlxLmTarget,
) -> None:
    ledger = MemoryLedger(40 * llama.facts.kv_bytes_per_token)
    bench = Bench(llama, ledger=ledger)
    for name, length in (("long", 50), ("short", 10)):
        bench.admit(ask(name, range(length), max_new_tokens=10))
        bench.finish()
    failed = bench.end("long")
    assert isinstance(failed, Failed)
    assert isinstance(failed.error, ShortageError)
    assert isinstance(bench.end("short"), Finished)


def test_a_text_alone_fills_the_memory_it_was_planned_for(
    llama: MlxLmTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reuse, "_RESERVE", 3)
    ledger = MemoryLedger(512 * llama.facts.kv_bytes_per_token)
    bench = Bench(llama, ledger=ledger)
    request = ask("long", [i % 250 for i in range(400)], max_new_tokens=112)
    bench.admit(request)
    bench.finish()
    assert ledger.report().refused == 0
    assert bench.tokens("long") == alone(llama, request)


@settings(max_examples=8)
@given(
    rows=st.integers(40, 130),
    pressed=st.booleans(),
    lengths=st.lists(
        st.tuples(st.integers(1, 40), st.integers(1, 20)), min_size=2, max_size=4
    ),
)
def test_nobody_waits_for_memory_while_nobody_gets_on(
    llama: MlxLmTarget, rows: int, pressed: bool, lengths: list[tuple[int, int]]
) -> None:
    """However little there is: who fits alone is answered, the others are told."""
    cache = PrefixCache(policy=Policy(shortest=4))
    ledger = ledger_beside(cache)
    # A token of the cache's keys takes bytes, too.
    ledger.budget = rows * (llama.facts.kv_bytes_per_token + 4)
    bench = Bench(llama, cache=cache, ledger=ledger, rows=rows)
    bench.lanes.pressed = pressed
    requests = [
        ask(str(i), range(i, i + prompt), max_new_tokens=answer)
        for i, (prompt, answer) in enumerate(lengths)
    ]
    waiting = list(requests)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lanes, "_RESERVE", 4)
        patch.setattr(reuse, "_RESERVE", 4)
        patch.setattr(attention_lanes, "_GROWTH_ROWS", 1)
        for _ in range(20 * sum(map(sum, lengths)) + 100):
            while waiting and bench.lanes.takes(waiting[0]):
                bench.admit(waiting.pop(0))
            bench.step()
    assert not waiting
    assert not bench.lanes.busy
    for request, (prompt, answer) in zip(requests, lengths, strict=True):
        end = bench.end(request.id)
        if prompt + answer <= rows:
            assert isinstance(end, Finished), end
        if isinstance(end, Finished):
            assert bench.tokens(request.id) == alone(llama, request)
        else:
            assert isinstance(end.error, ShortageError)


def test_the_last_one_is_never_set_aside(llama: MlxLmTarget) -> None:
    bench = Bench(llama, rows=5)
    request = ask("only", range(30))
    bench.admit(request)
    while bench.lanes.busy:
        bench.step()
        assert list(bench.lanes.suspend()) == []
    assert bench.tokens("only") == alone(llama, request)


def test_who_waits_at_a_keyboard_is_set_aside_last(llama: MlxLmTarget) -> None:
    bench = Bench(llama)
    bench.admit(ask("background", range(9)))
    bench.admit(ask("keyboard", range(20), foreground=True))
    assert [event.id for event in bench.lanes.suspend()] == ["background"]


def test_a_pressed_computer_lets_nobody_in_beside_others(llama: MlxLmTarget) -> None:
    bench = Bench(llama)
    bench.lanes.pressed = True
    assert bench.lanes.takes(ask("first", range(9)))
    bench.admit(ask("first", range(9), max_new_tokens=5))
    assert not bench.lanes.takes(ask("second", range(9)))
    bench.admit(ask("aside", range(9), max_new_tokens=5))
    bench.events += bench.lanes.suspend()
    while not any(isinstance(event, Finished) for event in bench.events):
        assert bench.lanes.phases()["suspended"] == 1
        bench.step()
    bench.finish()  # alone it goes on, however short memory is
    assert bench.end("aside").reason == "length"


def refuse_beyond(
    target: MlxLmTarget, rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Let MLX have no memory for passes over more rows than these."""
    one, together = target.forward, target.forward_together

    def refusing(held: int) -> None:
        if held > rows:
            mx.eval(mx.zeros(1))
            raise RuntimeError(REFUSAL)

    def forward(state: Any, token_ids: Any, *, rows: int) -> Forward:
        refusing(state.length + len(token_ids))
        return one(state, token_ids, rows=rows)

    def forward_together(states: Any, token_ids: Any) -> list[Forward]:
        refusing(sum(state.length for state in states))
        return together(states, token_ids)

    monkeypatch.setattr(target, "forward", forward)
    monkeypatch.setattr(target, "forward_together", forward_together)


def test_memory_that_mlx_does_not_get_costs_no_text(
    llama: MlxLmTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    requests = [ask(name, range(i, 20 + i)) for i, name in enumerate("abc")]
    expected = [alone(llama, request) for request in requests]
    now = 0.0
    bench = Bench(llama, clock=lambda: now)
    refuse_beyond(llama, 75, monkeypatch)
    for request in requests:
        bench.admit(request)
    bench.finish()
    assert any(isinstance(event, SetAside) for event in bench.events)
    assert [bench.tokens(request.id) for request in requests] == expected
    # What was refused is not expected again, for a while.
    bench.admit(requests[0])
    assert not bench.lanes.takes(ask("next", range(20), max_new_tokens=40))
    now += lanes._REMEMBERED
    assert bench.lanes.takes(ask("next", range(20), max_new_tokens=40))


@pytest.mark.parametrize("drafts", [False, True])
@pytest.mark.usefixtures("small_chunks")
def test_memory_that_mlx_does_not_get_once_costs_no_token_wherever_that_is(
    llama: MlxLmTarget, *, drafts: bool
) -> None:
    request = ask("text", range(40), max_new_tokens=10)
    expected = alone(llama, request)
    one = llama.forward
    passes = 0
    refused_at = 0

    def forward(state: Any, token_ids: Any, *, rows: int) -> Forward:
        nonlocal passes
        passes += 1
        if passes == refused_at:
            raise RuntimeError(REFUSAL)
        return one(state, token_ids, rows=rows)

    for refused_at in range(1, 9):
        cache = PrefixCache(policy=Policy(shortest=4))
        bench = Bench(llama, cache=cache, ledger=ledger_beside(cache))
        bench.admit(ask("earlier", range(200, 230), max_new_tokens=2))
        bench.finish()
        lengths = itertools.cycle([1, 0, 2])
        drafter = scripted(llama, request, lengths) if drafts else None
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(llama, "forward", forward)
            passes = 0
            bench.admit(request, drafter)
            bench.finish()
        aside = [event for event in bench.events if isinstance(event, SetAside)]
        assert aside or refused_at > passes, refused_at
        assert bench.tokens("text") == expected, refused_at


def test_a_text_that_is_too_large_even_alone_says_so_and_the_others_finish(
    llama: MlxLmTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = [ask(name, range(i, 20 + i)) for i, name in enumerate("ab")]
    expected = [alone(llama, request) for request in small]
    bench = Bench(llama)
    refuse_beyond(llama, 90, monkeypatch)
    for request in (*small, ask("large", range(88))):
        bench.admit(request)
    bench.finish()
    failed = bench.end("large")
    assert isinstance(failed, Failed)
    assert (failed.error.code, failed.fatal) == ("E-MEMORY", False)
    assert "does not suffice" in failed.error.message
    assert REFUSAL in failed.error.why
    assert [bench.tokens(request.id) for request in small] == expected
