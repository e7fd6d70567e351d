# SPDX-License-Identifier: Apache-2.0
"""The engine's cycles against the generation loop of dflash 0.1.0.

One difference is meant: near the end dflash drafts one token more than can be used
and drops the target's own. The engine leaves that draft out.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest

from splashpy.drafting.drafter import DraftSampling, Proposal, empty_proposal
from splashpy.engine.generation import generate
from splashpy.engine.request import Finished, GenerationRequest, TokensCommitted
from splashpy.models.target import Forward, TargetFacts
from splashpy.verification.sampling import SamplingParams

VOCAB = 32
FOLDER = Path(__file__).parent / "dflash2"
CASES = json.loads((FOLDER / "verify_loop" / "greedy_rounds.json").read_text())["cases"]


class RowCount:
    """A target state that only knows how long it is."""

    cut_anywhere = True

    def __init__(self) -> None:
        self.length = 0
        self.nbytes = 0
        self.arrays: list[mx.array] = []
        self.kept: dict[int, int] = {}

    def reserved(self, more: int) -> int:
        return self.length + more

    def roll_back(self, length: int) -> None:
        assert length <= self.length
        self.length = length


class ScriptedTarget:
    """Always continues with the stored text; its features are the positions."""

    facts = TargetFacts(
        model_type="scripted",
        vocab_size=VOCAB,
        hidden_size=1,
        num_layers=1,
        context_max=1000,
    )

    def __init__(self, text: Sequence[int]):
        self._text = list(text)
        self.calls: list[tuple[int, int]] = []

    def new_state(self, capacity: int) -> Any:
        return RowCount()

    def forward(self, state: Any, token_ids: mx.array, *, rows: int) -> Forward:
        start, count = state.length, token_ids.shape[0]
        state.length += count
        self.calls.append((start, count))
        after = mx.array(self._text[start + count - rows + 1 : start + count + 1])
        logits = (mx.arange(VOCAB)[None] == after[:, None]).astype(mx.float32)
        return Forward(logits, mx.arange(start, start + count)[:, None])

    def embed(self, token_ids: mx.array) -> mx.array:
        raise NotImplementedError

    def head(self, hidden: mx.array) -> mx.array:
        raise NotImplementedError

    def head_rows(self, token_ids: mx.array) -> Callable[[mx.array], mx.array]:
        raise NotImplementedError

    def tap(self, layer_ids: Sequence[int]) -> None:
        raise NotImplementedError


class ScriptedDrafter:
    """Proposes the stored drafts and writes down what it was given."""

    feature_layers: tuple[int, ...] = (0,)

    def __init__(self, block_size: int, drafts: list[list[int]]):
        self.block_size = block_size
        self._drafts = drafts
        self._rows: list[int] = []
        self.rounds: list[dict[str, Any]] = []

    def new_state(self) -> None:
        return None

    def idle(self, state: None) -> bool:
        return False

    def observe(
        self,
        state: None,
        token_ids: Sequence[int],
        features: mx.array | None,
        start: int,
    ) -> None:
        if features is not None:
            assert features[0, 0].item() == start
            self._rows += range(start, start + features.shape[0])

    def propose(
        self, state: None, anchor: mx.array, limit: int, sampling: DraftSampling
    ) -> Proposal:
        drafts = self._drafts[len(self.rounds)][: min(limit, self.block_size - 1)]
        self.rounds.append(
            {
                "anchor": anchor.item(),
                "context_rows": len(self._rows),
                "context_positions": [self._rows[0], self._rows[-1]],
                "block_start": sampling.position - 1,
            }
        )
        self._rows = []
        if not drafts:
            return empty_proposal()
        return Proposal(mx.array(drafts, dtype=mx.int32))


@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_cycles_are_those_of_dflash(case: dict[str, Any]) -> None:
    target = ScriptedTarget([*case["prompt"], *case["continuation"]])
    block_size = case["block_size_override"] or case["trained_block_size"]
    drafter = ScriptedDrafter(block_size, [r["draft"] for r in case["rounds"]])
    request = GenerationRequest(
        id="r",
        token_ids=tuple(case["prompt"]),
        sampling=SamplingParams(),
        seed=0,
        max_new_tokens=case["max_tokens"],
        stop_token_ids=frozenset(case["eos"]),
    )
    events = list(generate(request, target, drafter, None, cancelled=lambda: False))

    finished = events[-1]
    assert isinstance(finished, Finished)
    assert finished.reason == case["finish_reason"]
    first, *cycles = (e for e in events if isinstance(e, TokensCommitted))
    assert list(first.token_ids) == case["tokens"][:1]
    assert [list(c.token_ids) for c in cycles] == [r["tokens"] for r in case["rounds"]]

    emitted = 1
    calls = target.calls[len(target.calls) - len(cycles) :]
    for stored, seen, call in zip(case["rounds"], drafter.rounds, calls, strict=True):
        assert {key: stored[key] for key in seen} == seen
        useful = min(block_size, case["max_tokens"] - emitted)
        assert call == (stored["block_start"], useful)
        emitted += stored["produced"]
