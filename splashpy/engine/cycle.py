# SPDX-License-Identifier: Apache-2.0
"""The main loop's body: propose, verify, accept, roll back.

``launch`` builds one graph (draft, target pass, decision) and starts it; ``settle``
reads the decision, which is the cycle's only synchronisation. Between the two, a
sequence whose drafter is idle may launch its next cycle.

Shapes: K drafted tokens, V vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass
from time import perf_counter

import mlx.core as mx

from splashpy.drafting.drafter import DraftSampling, Proposal
from splashpy.engine.constraint import constrained
from splashpy.engine.decision import decide, read
from splashpy.engine.request import TokensCommitted
from splashpy.engine.sequence import Sequence
from splashpy.models.target import Target


@dataclass(frozen=True, slots=True)
class InFlight:
    """A cycle that was launched and not read yet."""

    cycle: int
    position: int
    proposal: Proposal
    decision: mx.array
    features: mx.array | None
    started: float
    drafted_at: float


def launch(sequence: Sequence, target: Target) -> InFlight:
    """Start one cycle after the anchor."""
    started = perf_counter()
    position = sequence.state.length  # of the anchor
    sequence.cycle += 1
    limit = sequence.budget - sequence.launched - 1  # the target adds one itself
    proposal = sequence.drafter.propose(
        sequence.drafter_state, sequence.anchor, limit, _draft_sampling(sequence)
    )
    drafted_at = perf_counter()

    block = mx.concatenate([sequence.anchor[None], proposal.token_ids])
    forward = target.forward(sequence.state, block, rows=block.shape[0])
    logits = constrained(sequence, forward.logits, proposal)
    decision = decide(sequence, logits, proposal, position)
    mx.async_eval(decision)

    sequence.anchor = decision[-1]  # right where nothing was drafted; settle knows
    sequence.launched += 1
    return InFlight(
        sequence.cycle,
        position,
        proposal,
        decision,
        forward.features,
        started,
        drafted_at,
    )


def settle(sequence: Sequence, flight: InFlight) -> TokensCommitted:
    """Read a cycle's decision, commit its run and roll the rest back.

    Raises:
        ModelResultError: the target computed NaN.
    """
    drafted = len(flight.proposal)
    verdict = read(flight.decision, flight.position)
    run = sequence.commit(verdict.run)
    if drafted:
        sequence.state.roll_back(flight.position + len(run))
        sequence.anchor = mx.array(run[-1], dtype=mx.int32)
        sequence.launched = sequence.emitted
    features = flight.features
    sequence.drafter.observe(
        sequence.drafter_state,
        run,
        None if features is None else features[: len(run)],
        flight.position,
    )
    accepted = min(verdict.kept, len(run))
    now = perf_counter()
    return TokensCommitted(
        id=sequence.request.id,
        cycle=flight.cycle,
        token_ids=run,
        sources=(flight.proposal.source,) * accepted + ("t",) * (len(run) - accepted),
        drafted=drafted,
        accepted=accepted,
        draft_seconds=flight.drafted_at - flight.started,
        verify_seconds=now - flight.drafted_at,
        at=now,
        by=flight.proposal.source if drafted else "t",
        cost=flight.proposal.cost,
    )


def _draft_sampling(sequence: Sequence) -> DraftSampling:
    request = sequence.request
    return DraftSampling(
        temperature=request.sampling.temperature,
        seed=request.seed,
        position=sequence.state.length + 1,
        cycle=sequence.cycle,
        coupled=request.seeded,
        grammar=sequence.grammar,
    )
