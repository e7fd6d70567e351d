# SPDX-License-Identifier: Apache-2.0
"""What is restored, from memory or disk, computes what a cold run computes."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest
import tiny

from splashpy.cache.disk.tier import DiskTier, DraftSide
from splashpy.cache.plan import Marks, Policy
from splashpy.cache.prefix import PrefixCache
from splashpy.engine import prefill
from splashpy.models.target import MlxLmTarget

ARCHITECTURES = ("llama", "qwen3_5", "gpt_oss", "gemma4", "glm_moe_dsa", "qwen3_5-q8")
LONG = tuple(i * 61 % 249 for i in range(620))
DIGEST = b"t" * 32


@pytest.fixture(autouse=True)
def even_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prefill, "next_chunk", lambda rate: 64)
    monkeypatch.setattr(prefill, "FIRST_CHUNK", 64)


Open = Callable[..., PrefixCache]


@pytest.fixture
def open_cache(tmp_path: Path) -> Iterator[Open]:
    """A cache on disk, as after a restart: ``open_cache(target, drafter)``."""
    opened: list[PrefixCache] = []

    def close() -> None:
        while opened:
            cache = opened.pop()
            while cache.write_some():
                pass
            assert cache.settle(30)
            cache.close(30)

    def make(target: MlxLmTarget, drafter: Any = None, **policy: Any) -> PrefixCache:
        close()
        side = DraftSide(b"d" * 32, drafter.new_context) if drafter else None
        tier = DiskTier.open(
            tmp_path,
            DIGEST,
            {"target": "tiny"},
            quota=1 << 30,
            clock=lambda: 1e9,
            draft=side,
            shortest=16,
        )
        cache = PrefixCache(
            root=DIGEST,
            policy=Policy(**policy),
            disk=tier,
            new_state=target.new_state,
        )
        opened.append(cache)
        return cache

    yield make
    close()


@pytest.mark.parametrize("cut", [17, 64, 255, 256, 257, 400, 511, 513, 600])
def test_any_cut_restored_from_memory_or_disk_equals_a_cold_run(
    cut: int,
    target: MlxLmTarget,
    answer: Callable,
    drafter: Callable,
    difference: Callable,
    rounding: float,
    open_cache: Open,
) -> None:
    marks = Marks(system=cut, unstable=3)
    prompt = (*LONG[:cut], *range(200, 240))
    cold = answer(target, drafter(target), prompt=prompt, tokens=8, marks=marks)
    warm_up = drafter(target)
    cache = open_cache(target, warm_up)
    answer(target, warm_up, prompt=LONG, tokens=4, marks=marks, cache=cache)

    reader = drafter(target)
    cache = open_cache(target, reader)
    for tier in ("disk", "ram"):
        warm = answer(target, reader, prompt=prompt, tokens=8, marks=marks, cache=cache)
        assert warm.found.tier == (tier if cut >= 256 or tier == "ram" else "")
        if warm.found.tier:
            least = cut if tier == "disk" else len(prompt) - 3
            assert warm.finished.cached_tokens >= least
        assert warm.tokens == cold.tokens
        assert difference(warm.state, cold.state) <= rounding


def test_the_drafter_goes_on_with_the_context_it_had(
    target: MlxLmTarget,
    answer: Callable,
    drafter: Callable,
    rounding: float,
    open_cache: Open,
) -> None:
    first = drafter(target)
    cache = open_cache(target, first)
    told = answer(target, first, prompt=LONG, tokens=6, cache=cache)
    turn = (*LONG, *told.tokens, 5, 4, 3, 2, 1)
    straight = drafter(target)
    cold = answer(target, straight, prompt=turn, tokens=6)
    for tier in ("ram", "disk"):
        reader = drafter(target)
        if tier == "disk":
            cache = open_cache(target, reader)
        else:
            cache = PrefixCache()
            before = drafter(target)
            answer(target, before, prompt=LONG, tokens=6, cache=cache)
        warm = answer(target, reader, prompt=turn, tokens=6, cache=cache)
        assert warm.found.tier == tier
        assert warm.tokens == cold.tokens
        assert reader.state.position == straight.state.position
        ours, theirs = reader.context_rows(), straight.context_rows()
        if tier == "disk":  # what has no window is not written
            continue
        for one, other in zip(ours, theirs, strict=True):
            assert mx.abs(one - other).max().item() <= rounding


def test_a_hit_without_the_drafters_context_is_still_a_hit(
    target: MlxLmTarget, answer: Callable, drafter: Callable
) -> None:
    cache = PrefixCache()
    told = answer(target, drafter(target), prompt=LONG, tokens=6, cache=cache)
    (run,) = cache.runs
    run.draft = None
    for place in run.places.values():
        place.draft = None
    turn = (*LONG, *told.tokens, 5, 4, 3)
    warm = answer(target, drafter(target), prompt=turn, tokens=8, cache=cache)
    assert warm.finished.cached_tokens == len(LONG) + 5
    assert warm.tokens == answer(target, drafter(target), prompt=turn, tokens=8).tokens


def test_two_hundred_conversations_answer_as_cold_ones_do(
    target: MlxLmTarget,
    architecture: str,
    answer: Callable,
    drafter: Callable,
    open_cache: Open,
) -> None:
    """Edits, branches, cancels, returns and restarts, in random order."""
    requests = {"llama": 200, "qwen3_5": 60}.get(architecture, 15)
    policy = {"copied": 8, "junction": 16}
    generator = random.Random(architecture)
    system = tuple(generator.randrange(249) for _ in range(90))
    talks: list[list[int]] = [[*system, 1, 2, 3]]
    cache = open_cache(target, **policy)
    cache.budget = 3_000_000
    hits = 0
    for _ in range(requests):
        event = generator.random()
        talk = list(generator.choice(talks))
        if event < 0.15:  # another conversation with this system prompt
            talk = list(system)
        elif event < 0.35:  # an early message is edited
            at = generator.randrange(90, len(talk))
            talk[at] = (talk[at] + 1) % 249
        elif event < 0.45:  # some turns are taken back
            del talk[generator.randrange(91, len(talk) + 1) :]
        elif event < 0.5:
            cache = open_cache(target, **policy)
            cache.budget = 3_000_000
        talk += [generator.randrange(249) for _ in range(generator.randrange(1, 60))]
        del talk[500:]
        prompt, marks = tuple(talk), Marks(system=90, unstable=generator.randrange(4))
        calls = iter(range(1000))
        stop = generator.randrange(12) if generator.random() < 0.15 else 1000
        warm = answer(
            target,
            drafter(target),
            prompt=prompt,
            marks=marks,
            cache=cache,
            tokens=5,
            cancelled=lambda calls=calls, stop=stop: next(calls) >= stop,
        )
        cold = answer(target, drafter(target), prompt=prompt, marks=marks, tokens=5)
        assert warm.tokens == cold.tokens[: len(warm.tokens)]
        assert len(warm.tokens) == 5 or stop < 1000
        hits += warm.finished.cached_tokens > 0
        talks.append([*talk, *warm.tokens])
        del talks[:-12]
    assert hits > requests // 2


def test_memory_stays_flat_over_many_requests(
    target: MlxLmTarget, architecture: str, answer: Callable, drafter: Callable
) -> None:
    cache, reader = PrefixCache(1_000_000), drafter(target)
    held: list[int] = []
    peaks: list[int] = []
    for number in range(200 if architecture == "llama" else 30):
        prompt = tuple((i * 7 + number * 13) % 249 for i in range(100))
        mx.reset_peak_memory()
        answer(target, reader, prompt=prompt, tokens=4, cache=cache)
        peaks.append(mx.get_peak_memory())
        mx.clear_cache()
        held.append(mx.get_active_memory())
        assert cache.nbytes <= cache.budget
    for sizes in (held, peaks):
        assert max(sizes[10:]) <= 1.02 * max(sizes[:10])


def test_eviction_gives_the_memory_back(
    target: MlxLmTarget, answer: Callable, drafter: Callable
) -> None:
    reader = drafter(target)
    answer(target, reader, prompt=LONG, tokens=4)
    mx.clear_cache()
    before = mx.get_active_memory()
    cache = PrefixCache(policy=Policy(copied=8))
    marks = Marks(system=100)
    answer(target, reader, prompt=LONG, tokens=4, cache=cache, marks=marks)
    branch = (*LONG[:100], *range(40))
    answer(target, reader, prompt=branch, tokens=4, cache=cache, marks=marks)
    assert len(cache.runs) == 2
    cache.clear()
    reader.new_state()
    mx.clear_cache()
    assert mx.get_active_memory() <= before + 4096


def test_tiny_targets_cover_every_kind_of_memory() -> None:
    assert set(ARCHITECTURES) <= set(tiny.MEMORIES)
