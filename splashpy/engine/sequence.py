# SPDX-License-Identifier: Apache-2.0
"""One text being written: its tokens, its state, its budget.

Invariant between cycles: the *anchor*, the last committed token, is not cached yet,
so the target state holds one row less than there are committed tokens. A stop token
or the last token of the budget therefore never enters the cache.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import mlx.core as mx

from splashpy.cache.plan import Kind
from splashpy.cache.stored_run import Place
from splashpy.drafting.drafter import Drafter
from splashpy.engine.lane_claim import LaneClaim, unlimited
from splashpy.engine.request import GenerationRequest
from splashpy.models.state import TargetState
from splashpy.verification.logprobs import TokenLogprob
from splashpy.verification.reasoning import AnswerRules, LimitedReasoning


@dataclass(slots=True)
class Sequence:
    """The running state of one request.

    Attributes:
        request: what was asked.
        state: rows of the target.
        drafter: who proposes.
        drafter_state: what it remembers of this text.
        budget: answer tokens at most.
        tokens: prompt and committed answer, as far as read from the device.
        anchor: [] int32, the last committed token, possibly unevaluated.
        launched: answer tokens committed at least, cycles in flight included.
        cycle: verify passes launched.
        cached: prompt tokens restored instead of computed.
        told: prompt tokens whose reading was told.
        grammar: what may follow the committed tokens; None leaves it free.
        plan: places of the prompt still to be kept for later requests.
        places: those that were.
        mask_seconds: spent on what the grammar allows.
        first: about the token the prefill produced, where that is asked for.
        claim: on the memory its state takes.
    """

    request: GenerationRequest
    state: TargetState
    drafter: Drafter
    drafter_state: Any
    budget: int
    tokens: list[int]
    anchor: mx.array
    launched: int = 0
    cycle: int = 0
    cached: int = 0
    told: int = 0
    plan: dict[int, Kind] = field(default_factory=dict)
    places: dict[int, Place] = field(default_factory=dict)
    grammar: AnswerRules | None = field(init=False, default=None)
    first: tuple[TokenLogprob, ...] = ()
    mask_seconds: float = 0.0
    claim: LaneClaim = field(default_factory=unlimited)

    def __post_init__(self) -> None:
        grammar, limit = self.request.grammar, self.request.reasoning
        grammar = None if grammar is None else grammar.fork()
        self.grammar = grammar if limit is None else LimitedReasoning(limit, grammar)

    @property
    def emitted(self) -> int:
        """Answer tokens committed and read."""
        return len(self.tokens) - len(self.request.token_ids)

    @property
    def stopped(self) -> bool:
        """Whether the last token ends the answer, or its grammar does."""
        if not self.emitted:
            return False
        complete = self.grammar is not None and self.grammar.finished
        return complete or self.tokens[-1] in self.request.stop_token_ids

    @property
    def finished(self) -> bool:
        """Whether nothing more may be written."""
        return self.stopped or self.emitted >= self.budget

    @property
    def due(self) -> int:
        """Rows the target holds between cycles: of all tokens but the anchor."""
        return len(self.tokens) - (1 if self.emitted else 0)

    def commit(self, run: tuple[int, ...]) -> tuple[int, ...]:
        """Append a run, cut by the budget and where the answer ends.

        Returns:
            The tokens really appended, at least one.
        """
        kept = run[: self.budget - self.emitted]
        for index, token in enumerate(kept):
            if token in self.request.stop_token_ids:
                kept = kept[: index + 1]
                break
        if self.grammar is not None:
            kept = kept[: self.grammar.consume(kept)]
        self.tokens.extend(kept)
        return kept

    def cover(self) -> None:
        """Claim the memory of the next cycle, and of one ahead of it.

        Raises:
            ShortageError: there is none.
        """
        left = len(self.request.token_ids) + self.budget - self.state.length
        rows = min(2 * self.drafter.block_size, max(left, 0))
        self.claim.cover(self.state, rows)

    def settle_rows(self) -> None:
        """Roll the target back to committed tokens."""
        self.state.roll_back(min(self.state.length, self.due))
