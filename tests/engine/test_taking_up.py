# SPDX-License-Identifier: Apache-2.0
"""What is stored is taken up within the budget, and counts from then on."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import tiny
from lanes_bench import Bench, alone, ask

from splashpy.cache.disk import writer
from splashpy.cache.disk.tier import DiskTier
from splashpy.cache.plan import Policy
from splashpy.cache.prefix import PrefixCache
from splashpy.drafting.plain import PlainDrafter
from splashpy.engine import reuse
from splashpy.engine.accounts import open_ledger
from splashpy.engine.lane_claim import COPIES, LaneClaim, LaneSize
from splashpy.engine.loading import Loaded
from splashpy.engine.memory import Needs, Plan
from splashpy.engine.memory_ledger import MemoryLedger
from splashpy.engine.request import Failed, SetAside
from splashpy.engine.task import Means, Task
from splashpy.errors import ShortageError
from splashpy.models.target import MlxLmTarget
from splashpy.protocol import DraftState

LONG = tuple(i * 61 % 249 for i in range(420))
DIGEST = b"n" * 32
ANSWER = 6


@pytest.fixture(scope="module", params=["llama", "qwen3_5"])
def target(request: pytest.FixtureRequest) -> MlxLmTarget:
    return tiny.target(request.param)


@pytest.fixture(scope="module")
def llama() -> MlxLmTarget:
    return tiny.target("llama")


MakeCache = Callable[[MlxLmTarget], PrefixCache]


@pytest.fixture
def open_cache(tmp_path: Path) -> Iterator[MakeCache]:
    """A cache with a directory: ``open_cache(target)``."""
    opened: list[PrefixCache] = []

    def make(target: MlxLmTarget) -> PrefixCache:
        tier = DiskTier.open(
            tmp_path, DIGEST, {}, quota=1 << 30, clock=lambda: 1e9, shortest=256
        )
        policy = Policy(shortest=1, copied=16)
        cache = PrefixCache(
            root=DIGEST, policy=policy, disk=tier, new_state=target.new_state
        )
        opened.append(cache)
        return cache

    yield make
    for cache in opened:
        cache.close(20)


def read(target: MlxLmTarget, cache: PrefixCache, prompt: tuple[int, ...]) -> None:
    """Answer a prompt, and bring what is stored of it to disk."""
    bench = Bench(target, cache=cache)
    bench.admit(ask("earlier", prompt, max_new_tokens=ANSWER))
    bench.finish()
    while cache.write_some():
        pass
    assert cache.settle(20)


def loaded(target: MlxLmTarget) -> Loaded:
    """A model whose plan has no budget; a test gives the ledger one."""
    needs = Needs(target=0, row=target.facts.kv_bytes_per_token, context_max=512)
    return Loaded(
        target=target,
        drafter=PlainDrafter(),
        draft=DraftState(),
        plan=Plan(needs=needs, budget=1, kv="bf16", context=512),
    )


def open_books(
    target: MlxLmTarget, cache: PrefixCache, rows: int
) -> tuple[MemoryLedger, LaneSize]:
    """A ledger with memory for one text of so many rows beside what is stored."""
    sizes = target.state_sizes()
    size = LaneSize(row=sizes.row, fixed=COPIES * sizes.fixed)
    ledger = open_ledger(loaded(target), cache, in_use=lambda: 0)
    ledger.budget = ledger.charged + size.fixed + rows * size.row
    return ledger, size


def begun(
    target: MlxLmTarget, cache: PrefixCache, claim: LaneClaim, prompt: tuple[int, ...]
) -> Task:
    request = ask("next", prompt, max_new_tokens=ANSWER)
    task = Task(
        request, Means(target, PlainDrafter(), cache, claim=claim), lambda: False
    )
    list(task.begin())
    return task


@pytest.mark.parametrize("how", ["taken over", "copied", "from disk"])
def test_what_a_text_takes_up_counts_before_it_reads_on(
    target: MlxLmTarget, open_cache: MakeCache, how: str
) -> None:
    cache = open_cache(target)
    if how == "copied":  # where a text that goes on from the middle is kept, too
        read(target, cache, LONG[:300])
    read(target, cache, LONG)
    if how == "from disk":
        cache.clear()
    prompt = (*LONG[:300], 3, 4, 5) if how == "copied" else (*LONG, 3)
    runs = len(cache.runs)
    ledger, size = open_books(target, cache, 512)
    task = begun(target, cache, LaneClaim(ledger, size), prompt)

    assert task.begun.cached >= 256
    assert len(cache.runs) == (0 if how == "taken over" else runs)
    taken = task.begun.state
    shared = sum(taken.kept.values())
    assert ledger.held["lanes"] >= taken.nbytes - shared
    assert sum(ledger.held.values()) >= cache.nbytes + taken.nbytes - shared
    assert ledger.charged <= ledger.budget
    task.abandon()
    assert ledger.held["lanes"] == 0


def test_where_a_copy_does_not_fit_the_tail_is_given_up_instead(
    llama: MlxLmTarget, open_cache: MakeCache
) -> None:
    """The copy takes the rows that are reserved for the answer, too."""
    cache = open_cache(llama)
    read(llama, cache, LONG)
    ledger, size = open_books(llama, cache, 120)
    task = begun(llama, cache, LaneClaim(ledger, size), (*LONG[:100], 3, 4, 5))
    assert len(cache.runs) == 1  # 110 rows fit
    task.abandon()
    ledger.budget = ledger.charged + 105 * size.row
    task = begun(llama, cache, LaneClaim(ledger, size), (*LONG[:100], 3, 4, 5))
    assert task.begun.cached == 100
    assert cache.runs == []
    assert ledger.charged <= ledger.budget


def test_stored_runs_make_room_for_what_is_restored(
    target: MlxLmTarget, open_cache: MakeCache
) -> None:
    cache = open_cache(target)
    read(target, cache, LONG)
    cache.clear()
    read(target, cache, tuple(reversed(LONG)))
    ledger, size = open_books(target, cache, 10)
    task = begun(target, cache, LaneClaim(ledger, size), (*LONG, 3))
    assert task.begun.cached >= 256
    assert cache.runs == []
    assert ledger.charged <= ledger.budget


def test_what_does_not_fit_is_not_restored_and_nothing_stays_claimed(
    target: MlxLmTarget, open_cache: MakeCache
) -> None:
    cache = open_cache(target)
    read(target, cache, LONG)
    cache.clear()
    ledger, size = open_books(target, cache, 200)
    claim = LaneClaim(ledger, size)
    with pytest.raises(ShortageError, match="tokens of context"):
        begun(target, cache, claim, (*LONG, 3))
    assert claim.nbytes == 0


def test_a_state_is_restored_with_fewer_rows_ahead_where_memory_is_short(
    llama: MlxLmTarget, open_cache: MakeCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = open_cache(llama)
    read(llama, cache, LONG)
    cache.clear()
    ledger, size = open_books(llama, cache, 430)
    request = ask("next", (*LONG, 3), max_new_tokens=80)
    means = Means(llama, PlainDrafter(), cache, claim=LaneClaim(ledger, size))
    task = Task(request, means, lambda: False)
    list(task.begin())
    assert task.begun.cached == task.begun.state.reserved(0) == len(LONG) - 1
    assert ledger.charged <= ledger.budget


def test_without_memory_for_copies_of_records_a_prompt_is_read_instead(
    llama: MlxLmTarget, open_cache: MakeCache
) -> None:
    cache = open_cache(llama)
    read(llama, cache, LONG)
    cache.clear()
    ledger, size = open_books(llama, cache, 512)
    asked = []
    cache.fits = lambda nbytes: bool(asked.append(nbytes))
    task = begun(llama, cache, LaneClaim(ledger, size), (*LONG, 3))
    assert task.begun.cached == 0
    assert asked[0] > 256 * size.row  # a record, with others read ahead


def test_copies_use_the_memory_of_passes_while_there_is_none() -> None:
    used = 0
    ledger = MemoryLedger(1000, lambda: used)
    ledger.claim("weights", 600)
    ledger.claim("scratch", 300)
    assert ledger.fits_beside(400)
    assert not ledger.fits_beside(401)
    used = 700  # more than anybody claimed but for passes
    assert ledger.fits_beside(300)
    assert not ledger.fits_beside(301)


def test_a_text_waits_for_the_rows_it_would_restore_beside_another(
    target: MlxLmTarget, open_cache: MakeCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reuse, "_RESERVE", 3)
    cache = open_cache(target)
    read(target, cache, LONG)
    cache.clear()
    ledger, size = open_books(target, cache, 512)
    ledger.budget += size.fixed
    most = ledger.budget - ledger.charged
    bench = Bench(target, cache=cache, ledger=ledger, size=size)
    requests = [
        ask("runs", range(100, 200), max_new_tokens=40),
        ask("restored", (*LONG, 3), max_new_tokens=5),
    ]
    expected = [alone(target, request) for request in requests]
    for request in requests:
        bench.admit(request)
    while bench.lanes.busy:
        bench.step()
        texts = [t.sequence.state.nbytes for t in bench.lanes._running if t.sequence]
        assert sum(texts) + cache.nbytes <= most
    assert [e for e in bench.events if isinstance(e, Failed)] == []
    assert {e.id for e in bench.events if isinstance(e, SetAside)} == {"restored"}
    assert [bench.tokens(request.id) for request in requests] == expected
    assert bench.end("restored").cached_tokens >= 256


def test_a_text_that_is_aside_stays_there_while_what_it_had_does_not_fit(
    llama: MlxLmTarget, open_cache: MakeCache
) -> None:
    cache = open_cache(llama)
    read(llama, cache, LONG)
    cache.clear()
    ledger, size = open_books(llama, cache, 512)
    task = begun(llama, cache, LaneClaim(ledger, size), (*LONG, 3))
    task.set_aside()
    assert ledger.held["lanes"] == 0
    ledger.claim("lanes", 300 * size.row)
    with pytest.raises(ShortageError):
        task.take_up()
    assert task.aside
    assert task.phase == "suspended"


def test_copies_on_their_way_to_disk_are_waited_for_before_anybody_is_refused(
    llama: MlxLmTarget, open_cache: MakeCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = open_cache(llama)
    gate, write = threading.Event(), writer.write

    def slow(*arguments: object, **names: object) -> int:
        assert gate.wait(60)
        return write(*arguments, **names)

    monkeypatch.setattr(writer, "write", slow)
    bench = Bench(llama, cache=cache)
    bench.admit(ask("earlier", LONG, max_new_tokens=ANSWER))
    bench.finish()
    ledger, _ = open_books(llama, cache, 0)
    ledger.budget = 1 << 30
    cache.write_some()
    staged, runs = cache.staged_bytes, cache.nbytes
    assert ledger.held["staging"] == staged > 0
    ledger.budget = ledger.charged
    ledger.offer("buffers", lambda _: gate.set() or 0)  # asked first of all
    text = ledger.reserve(staged, "a text")
    assert text.nbytes == staged
    assert (cache.staged_bytes, cache.nbytes) == (0, runs)
