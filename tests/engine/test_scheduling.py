# SPDX-License-Identifier: Apache-2.0
"""Who gets how much of a machine whose passes take a known time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
import tiny
from lanes_bench import Bench, alone, ask

from splashpy.cache.prefix import PrefixCache
from splashpy.engine import prefill
from splashpy.engine.request import (
    Finished,
    GenerationRequest,
    PrefillProgress,
    TokensCommitted,
)
from splashpy.engine.task import Task
from splashpy.models.target import Forward, MlxLmTarget

PASS_SECONDS, ROW_SECONDS = 0.05, 0.005
WINDOW_SECONDS = 60.0
CLIENTS = "abcd"


class Machine:
    """A tiny target, and a clock that only its passes move."""

    def __init__(self, patch: pytest.MonkeyPatch, scale: float = 1.0):
        self.now, self._scale = 0.0, scale
        self.target = tiny.target()
        one, together = self.target.forward, self.target.forward_together

        def forward(state: Any, token_ids: Any, *, rows: int) -> Forward:
            self._spend(token_ids.size)
            return one(state, token_ids, rows=rows)

        def forward_together(states: Any, token_ids: Any) -> list[Forward]:
            if len(states) > 1:
                self._spend(token_ids.size)
            return together(states, token_ids)

        assert self.target.shares()
        patch.setattr(self.target, "forward", forward)
        patch.setattr(self.target, "forward_together", forward_together)
        patch.setattr(prefill, "FIRST_CHUNK", 32)

    def bench(self, **fields: Any) -> Bench:
        return Bench(self.target, clock=lambda: self.now, **fields)

    def _spend(self, rows: int) -> None:
        self.now += self._scale * (PASS_SECONDS + ROW_SECONDS * rows)


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(monkeypatch)


def steps(bench: Bench, machine: Machine) -> Iterator[tuple[str, float]]:
    """What every step did, and how long it took."""
    while bench.lanes.busy:
        before = machine.now
        events = bench.step()
        reads = any(isinstance(event, PrefillProgress) for event in events)
        yield "reads" if reads else "writes", machine.now - before


def test_equal_clients_get_equal_shares(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(monkeypatch, scale=4.0)
    bench = machine.bench()
    served: Counter[str] = Counter()

    def begin(client: str, number: int) -> None:
        first = 40 * CLIENTS.index(client)
        prompt = [first + (number + i) % 40 for i in range(40)]
        bench.admit(ask(f"{client} {number}", prompt, max_new_tokens=12))

    for client in CLIENTS:
        begin(client, 0)
    while machine.now < WINDOW_SECONDS:
        for event in bench.step():
            if isinstance(event, TokensCommitted):
                served[event.id[0]] += len(event.token_ids)
            if isinstance(event, Finished):
                client, number = event.id.split()
                begin(client, int(number) + 1)
    assert set(served) == set(CLIENTS)
    assert min(served.values()) >= 24, "two answers each, or nothing was shown"
    assert max(served.values()) <= 1.5 * min(served.values())


def test_a_chunk_alone_takes_about_a_second_and_half_of_it_beside_an_answer(
    machine: Machine,
) -> None:
    bench = machine.bench()
    prompt = [i % 250 for i in range(300)]
    bench.admit(ask("alone", prompt, prefill_only=True))
    lone = [seconds for did, seconds in steps(bench, machine) if did == "reads"]
    assert max(lone) == pytest.approx(PASS_SECONDS + 128 * ROW_SECONDS)

    bench = machine.bench()
    bench.admit(ask("writing", range(5), max_new_tokens=100))
    while not bench.tokens("writing"):
        bench.step()
    bench.admit(ask("reading", prompt, max_new_tokens=1))
    shared = [seconds for did, seconds in steps(bench, machine) if did == "reads"]
    assert max(shared) == pytest.approx(PASS_SECONDS + 64 * ROW_SECONDS)
    assert max(shared) <= 0.5


def test_neither_readers_nor_writers_starve(machine: Machine) -> None:
    bench = machine.bench()
    bench.admit(ask("writing", range(5), max_new_tokens=200))
    while not bench.tokens("writing"):
        bench.step()
    for number in range(3):
        bench.admit(ask(f"r{number}", [60 * number + i % 50 for i in range(200)]))
    read = wrote = longest = 0.0
    ended: set[str] = set()
    for did, seconds in steps(bench, machine):
        read += seconds if did == "reads" else 0.0
        wrote += seconds if did == "writes" else 0.0
        longest = max(longest, seconds)
        ended = {event.id for event in bench.events if isinstance(event, Finished)}
        if len(bench.lanes.phases()) > 1:  # somebody reads, somebody writes
            assert read <= wrote + 2 * longest
    assert ended == {"writing", "r0", "r1", "r2"}


def test_the_foreground_is_read_first_however_long_it_is(machine: Machine) -> None:
    bench = machine.bench()
    bench.admit(ask("short", range(40), prefill_only=True))
    bench.admit(ask("keyboard", range(100, 200), foreground=True, prefill_only=True))
    bench.finish()
    ends = [event.id for event in bench.events if isinstance(event, Finished)]
    assert ends == ["keyboard", "short"]


class Phased:
    """A text that writes, and one whose phase a test waits for."""

    def __init__(self, target: MlxLmTarget):
        shared = [i * 13 % 250 for i in range(300)]
        self.bench = Bench(target, cache=PrefixCache())
        self.writer = ask("writer", range(5), max_new_tokens=40)
        self.reader = ask("reader", [*shared, 1], max_new_tokens=12)
        self.victim = ask("victim", [*shared, 7, 8], max_new_tokens=30)
        self.bench.admit(self.writer)
        while not self.bench.tokens("writer"):
            self.bench.step()

    def reach(self, phase: str) -> Task:
        bench = self.bench
        if phase == "waiting_prefix":
            bench.admit(self.reader)
        task = bench.admit(self.victim)
        if phase in ("suspended", "restoring"):
            while task.phase != "decode":
                bench.step()
            bench.events += bench.lanes.suspend()
        while bench.lanes.phases()[phase] < (2 if phase == "decode" else 1):
            bench.step()
        return task


@pytest.mark.parametrize(
    "phase", ["waiting_prefix", "prefill", "decode", "suspended", "restoring"]
)
def test_a_request_that_is_cancelled_ends_with_the_next_step_in_any_phase(
    phase: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prefill, "FIRST_CHUNK", 32)
    monkeypatch.setattr(prefill, "next_chunk", lambda rate: 32)
    target = tiny.target()
    phased = Phased(target)
    bench = phased.bench
    phased.reach(phase)
    told = bench.tokens("victim")

    bench.gone.add("victim")
    bench.step()

    assert bench.end("victim").reason == "cancelled"
    assert bench.tokens("victim") == told
    bench.finish()
    others: list[GenerationRequest] = [phased.writer]
    if phase == "waiting_prefix":
        others.append(phased.reader)
    for request in others:
        assert bench.tokens(request.id) == alone(target, request)
