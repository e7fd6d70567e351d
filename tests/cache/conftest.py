# SPDX-License-Identifier: Apache-2.0
"""States whose rows show the tokens they belong to."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest

from splashpy.cache.disk.tier import DiskTier, DraftSide
from splashpy.cache.lookup import Lookup
from splashpy.cache.plan import UNMARKED, Marks, Policy, plan
from splashpy.cache.prefix import PrefixCache
from splashpy.models.attention_lanes import LaneKV, LaneRotKV
from splashpy.models.recurrent_lane import LaneRecurrent
from splashpy.models.state import Lane, TargetState

KINDS = ("attention", "window", "hybrid")
_MODULUS = 65521
WINDOW = 8


def new_state(kind: str) -> TargetState:
    lanes: dict[str, list[Lane]] = {
        "attention": [LaneKV(4), LaneKV(4)],
        "window": [LaneKV(4), LaneRotKV(WINDOW, 4, spare=12)],
        "hybrid": [LaneKV(4), LaneRecurrent(2)],
    }
    return TargetState(lanes[kind])


def summary(tokens: Sequence[int]) -> int:
    """What a recurrent state remembers of everything it read, in order."""
    value = 7
    for token in tokens:
        value = (value * 31 + token) % _MODULUS
    return value


def read(state: TargetState, tokens: Sequence[int]) -> None:
    """A chunk of a prompt: keys and values are the tokens themselves."""
    state.begin()
    rows = mx.array(tokens, dtype=mx.float32)[None, None, :, None]
    for lane in state.lanes:
        if isinstance(lane, LaneRecurrent):
            before = lane[0]
            value = 7 if before is None else int(before.item())
            for token in tokens:
                value = (value * 31 + token) % _MODULUS
            lane[0], lane[1] = mx.array([value]), mx.array([-value])
        else:
            lane.update_and_fetch(rows, -rows)
    state.finish_chunk(len(tokens))
    mx.eval(state.arrays)


def check(state: TargetState, tokens: Sequence[int]) -> None:
    """The state holds exactly what reading these tokens leaves."""
    assert state.length == len(tokens)
    for lane in state.lanes:
        assert lane.offset == len(tokens)
        if not tokens:
            continue
        if isinstance(lane, LaneRecurrent):
            one, other = lane.arrays
            assert (one.item(), -other.item()) == (summary(tokens),) * 2
        elif isinstance(lane, LaneRotKV):
            seen = min(len(tokens), WINDOW - 1)
            first = len(tokens) - seen - lane._first
            rows = lane.arrays[0][0, 0, first : first + seen, 0].tolist()
            assert rows == list(tokens[len(tokens) - seen :])
        else:
            keys, values = (a[0, 0, : len(tokens), 0].tolist() for a in lane.arrays)
            assert keys == [-value for value in values] == list(tokens)


def open_cache(
    root: Path,
    kind: str,
    *,
    digest: bytes = b"n" * 32,
    quota: int = 1 << 30,
    clock: Callable[[], float] = lambda: 1e9,
    shortest: int = 256,
    budget: int = 1 << 30,
    draft: DraftSide | None = None,
    **policy: Any,
) -> PrefixCache:
    """A cache with a directory."""
    tier = DiskTier.open(
        root,
        digest,
        {"model": digest.hex()},
        quota=quota,
        clock=clock,
        shortest=shortest,
        draft=draft,
    )
    return PrefixCache(
        budget,
        root=digest,
        policy=Policy(**policy),
        disk=tier,
        new_state=lambda _: new_state(kind),
    )


@dataclass
class Reader:
    """Reads prompts through a cache as the engine does, and checks every state."""

    cache: PrefixCache
    kind: str

    def ask(
        self,
        prompt: Sequence[int],
        answer: Sequence[int] = (),
        *,
        marks: Marks = UNMARKED,
        stop: int | None = None,
    ) -> Lookup:
        """Read a prompt and an answer of which the last token has no row.

        Args:
            prompt: tokens.
            answer: tokens.
            marks: of the prompt.
            stop: cancel when this many prompt tokens are read.
        """
        taken = self.cache.take(prompt, len(prompt) + 8)
        found, state = taken.found, taken.state
        if state is None:
            assert found.resumed == 0
            state = new_state(self.kind)
        check(state, prompt[: found.resumed])
        places = dict(taken.places)
        planned = plan(
            self.cache.policy,
            cached=found.resumed,
            length=len(prompt),
            marks=marks,
            junction=found.junction,
        )
        for at in [*planned, len(prompt)]:
            if stop is not None and at > stop:
                break
            read(state, prompt[state.length : at])
            if at in planned:
                state.keep()
                places[at] = self.cache.place(planned[at])
        if stop is None and len(answer) > 1:
            read(state, answer[:-1])
        tokens = [*prompt, *answer][: state.length]
        self.cache.insert(tokens, state, places=places)
        return found

    def write(self) -> None:
        """Bring everything to disk."""
        while self.cache.write_some():
            pass
        assert self.cache.settle(20)


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return request.param


MakeReader = Callable[..., Reader]


@pytest.fixture
def reader() -> MakeReader:
    """Make a reader: ``reader(kind, budget, policy fields)``."""

    def make(kind: str, budget: int = 1 << 30, **policy: Any) -> Reader:
        return Reader(PrefixCache(budget, policy=Policy(**policy)), kind)

    return make


@pytest.fixture
def on_disk(tmp_path: Path) -> Iterator[MakeReader]:
    """A reader with a directory, made again as after a restart: ``on_disk(kind)``."""
    opened: list[PrefixCache] = []

    def make(kind: str, root: Path = tmp_path / "kv", **fields: Any) -> Reader:
        close()
        opened.append(open_cache(root, kind, **fields))
        return Reader(opened[-1], kind)

    def close() -> None:
        while opened:
            opened.pop().close(20)

    yield make
    close()


@pytest.fixture
def filled() -> Callable[[str, Sequence[int]], TargetState]:
    """A state that has read some tokens: ``filled(kind, tokens)``."""

    def make(kind: str, tokens: Sequence[int]) -> TargetState:
        state = new_state(kind)
        read(state, tokens)
        return state

    return make


@pytest.fixture
def holds() -> Callable[[TargetState, Sequence[int]], None]:
    """Assert that a state holds exactly the rows of some tokens."""
    return check


@pytest.fixture(scope="session")
def reader_class() -> MakeReader:
    """As ``reader``, for tests hypothesis runs many times."""

    def make(kind: str, budget: int, **policy: Any) -> Reader:
        return Reader(PrefixCache(budget, policy=Policy(**policy)), kind)

    return make
