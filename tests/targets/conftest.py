# SPDX-License-Identifier: Apache-2.0
"""Every kind of target, and one way to look at everything a request leaves behind."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest
import tiny

from splashpy.cache.lookup import Lookup
from splashpy.cache.prefix import PrefixCache
from splashpy.drafting.dflash2 import DFlash2Drafter, DFlash2State
from splashpy.drafting.drafter import DraftSampling, Proposal, empty_proposal
from splashpy.engine.generation import generate
from splashpy.engine.request import (
    Finished,
    GenerationRequest,
    LookedUp,
    TokensCommitted,
)
from splashpy.models.attention_lanes import LaneKV, LaneList, LaneRotKV
from splashpy.models.dflash2_context import DrafterContext
from splashpy.models.loading import make_target
from splashpy.models.recurrent_lane import LaneRecurrent
from splashpy.models.state import Lane, TargetState
from splashpy.models.target import MlxLmTarget
from splashpy.verification.sampling import SamplingParams

PROMPT = tuple(i * 37 % 251 for i in range(45))
SEEDED = SamplingParams(temperature=1.0)


def pytest_configure(config: pytest.Config) -> None:
    """Print a line for each target and property where only this directory is run."""
    here = Path(__file__).parent
    asked = [Path(argument.partition("::")[0]).absolute() for argument in config.args]
    if config.option.verbose == 0 and all(p.is_relative_to(here) for p in asked):
        config.option.verbose = 1


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test of ``architecture`` for those its module names, else for every one."""
    if "architecture" in metafunc.fixturenames:
        names = getattr(metafunc.module, "ARCHITECTURES", list(tiny.FAMILIES))
        metafunc.parametrize("architecture", names, indirect=True, scope="session")


@pytest.fixture(scope="session")
def architecture(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(scope="session")
def target(architecture: str) -> MlxLmTarget:
    family, _, kv = architecture.partition("-")
    network = tiny.model(family, **(tiny.WIDE if kv else {}))
    target = make_target(network, family, 2048, 0)
    assert target.round_rows() == (kv == "q8")
    return target


@pytest.fixture(scope="session")
def rounding(architecture: str) -> float:
    """How far a state read row by row may be from one read in blocks.

    mlx-lm computes a single row of latent attention with the projections multiplied in
    another order than the rows of a block; everything else is the same bit for bit.
    """
    return 1e-4 if architecture in ("glm_moe_dsa", "kimi_k25") else 0.0


class ScriptedNetworkDrafter:
    """Proposes a known text, spoiled after chosen lengths, with a real drafter's state.

    The network reads the features of every committed row, as it would if it drafted.

    Args:
        target: whose features it reads.
        truth: the tokens plain decoding gives; empty proposes nothing.
        lengths: how many drafts of each cycle are right.
        block_size: rows of one verify pass.
    """

    def __init__(
        self,
        target: MlxLmTarget,
        truth: Sequence[int] = (),
        lengths: Iterator[int] | None = None,
        *,
        block_size: int = 8,
    ):
        self.block_size = block_size
        self.reader = DFlash2Drafter(tiny.drafter_network(), target)
        self.feature_layers = self.reader.feature_layers
        self.state = self.reader.new_state()
        self._truth = list(truth)
        self._lengths = lengths or itertools.repeat(0)
        self._seen = 0

    def new_state(self) -> DFlash2State:
        self.state = self.reader.new_state()
        self._seen = 0
        return self.state

    def idle(self, state: DFlash2State) -> bool:
        return not self._truth

    def observe(
        self,
        state: DFlash2State,
        token_ids: Sequence[int],
        features: mx.array | None,
        start: int,
    ) -> None:
        self._seen += len(token_ids)
        self.reader.observe(state, token_ids, features, start)

    def propose(
        self,
        state: DFlash2State,
        anchor: mx.array,
        limit: int,
        sampling: DraftSampling,
    ) -> Proposal:
        count = min(limit, self.block_size - 1)
        if not self._truth or count < 1:
            return empty_proposal()
        right, done = next(self._lengths), self._seen - len(PROMPT)
        ahead = self._truth[done : done + count]
        ahead += [0] * (count - len(ahead))
        drafts = [t if i < right else (t + 1) % 251 for i, t in enumerate(ahead)]
        return Proposal(mx.array(drafts, dtype=mx.int32))

    def new_context(self) -> DrafterContext:
        return self.reader.new_context()

    def keep(self, state: DFlash2State) -> DrafterContext | None:
        return self.reader.keep(state)

    def take_up(self, state: DFlash2State, context: DrafterContext) -> None:
        self.reader.take_up(state, context)

    def context_rows(self) -> list[mx.array]:
        """Keys and values of every layer, as the next proposal would see them."""
        self.reader._project(self.state)
        layers = self.state.context.layers
        return [array for layer in layers for array in layer.rows]


@dataclass
class Outcome:
    """What a request gave and what it left behind."""

    cycles: list[TokensCommitted]
    finished: Finished
    cache: PrefixCache
    found: Lookup

    @property
    def tokens(self) -> list[int]:
        return [token for cycle in self.cycles for token in cycle.token_ids]

    @property
    def accepted(self) -> list[int]:
        return [cycle.accepted for cycle in self.cycles if cycle.drafted]

    @property
    def state(self) -> TargetState:
        return self.cache.runs[-1].state


Answer = Callable[..., Outcome]


@pytest.fixture(scope="session")
def answer() -> Answer:
    """Run one request to its end: ``answer(target, drafter, prompt=, ...)``."""

    def run(
        target: MlxLmTarget,
        drafter: Any,
        *,
        prompt: tuple[int, ...] = PROMPT,
        cache: PrefixCache | None = None,
        sampling: SamplingParams = SEEDED,
        tokens: int = 40,
        cancelled: Callable[[], bool] = lambda: False,
        **fields: Any,
    ) -> Outcome:
        request = GenerationRequest(
            id="r",
            token_ids=prompt,
            sampling=sampling,
            seed=7,
            seeded=True,
            max_new_tokens=tokens,
            **fields,
        )
        cache = PrefixCache() if cache is None else cache
        target.tap(drafter.feature_layers)
        try:
            events = list(
                generate(request, target, drafter, cache, cancelled=cancelled)
            )
        finally:
            target.tap(())
        cycles = [event for event in events if isinstance(event, TokensCommitted)]
        assert isinstance(events[-1], Finished)
        assert isinstance(events[0], LookedUp)
        return Outcome(cycles, events[-1], cache, events[0].found)

    return run


@pytest.fixture(scope="session")
def drafter() -> type[ScriptedNetworkDrafter]:
    """Make a drafter: ``drafter(target, truth, lengths)``, or a plain one."""
    return ScriptedNetworkDrafter


def contents(state: TargetState) -> list[mx.array]:
    """Everything a state remembers, without the room it reserves."""
    return [array for lane in state.lanes for array in _rows(lane)]


def _rows(lane: Lane) -> list[mx.array]:
    if isinstance(lane, LaneList):
        return [array for part in lane._lanes for array in _rows(part)]
    if isinstance(lane, LaneRecurrent):
        return lane.arrays
    seen = lane.offset
    first = 0
    if isinstance(lane, LaneRotKV):
        seen = min(seen, lane._window - 1)
        first = lane.offset - seen - lane._first
    assert isinstance(lane, LaneKV | LaneRotKV)
    return [array[:, :, first : first + seen] for array in lane.arrays]


@pytest.fixture(scope="session")
def difference() -> Callable[[TargetState, TargetState], float]:
    """The largest difference between what two states remember; 0 is bit for bit."""

    def largest(one: TargetState, other: TargetState) -> float:
        ours, theirs = contents(one), contents(other)
        assert [a.shape for a in ours] == [b.shape for b in theirs]
        assert ours
        pairs = zip(ours, theirs, strict=True)
        return max(mx.abs(a - b).max().item() for a, b in pairs)

    return largest
