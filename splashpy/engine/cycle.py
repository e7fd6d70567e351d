# SPDX-License-Identifier: Apache-2.0
"""The main loop's body: propose, verify, accept, roll back.

``launch`` builds one graph (draft, target pass, decision) and starts it; ``settle``
reads the decision, which is the cycle's only synchronisation. Between the two, a
sequence whose drafter is idle may launch its next cycle.

Shapes: K drafted tokens, V vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from time import perf_counter

import mlx.core as mx

from splashpy.drafting.drafter import DraftSampling, Proposal
from splashpy.engine.constraint import constrained, rules_within
from splashpy.engine.decision import decide, drawn_from, read
from splashpy.engine.ranking import rank_decided
from splashpy.engine.request import TokensCommitted
from splashpy.engine.sequence import Sequence
from splashpy.models.target import Forward, Target
from splashpy.verification.logprobs import Ranking, read_ranking


@dataclass(frozen=True, slots=True)
class InFlight:
    """A cycle that was launched and not read yet.

    ``rows`` were read for it, maybe more than were drafted.
    """

    cycle: int
    position: int
    rows: int
    proposal: Proposal
    decision: mx.array
    ranking: Ranking
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
        sequence.drafter_state, sequence.anchor, limit, draft_sampling(sequence)
    )
    drafted_at = perf_counter()

    block = mx.concatenate([sequence.anchor[None], proposal.token_ids])
    forward = target.forward(sequence.state, block, rows=block.shape[0])
    flight = judge(sequence, proposal, forward, position, (started, drafted_at))
    mx.async_eval(flight.decision, *flight.ranking)
    return flight


def judge(
    sequence: Sequence,
    proposal: Proposal,
    forward: Forward,
    position: int,
    times: tuple[float, float],
) -> InFlight:
    """The target's decision on a proposal, not started yet.

    Args:
        sequence: whose cycle it is.
        proposal: what was drafted.
        forward: of the anchor and the drafts, and maybe of rows behind them.
        position: of the anchor.
        times: when the cycle began, and when its draft was made.
    """
    own = forward.logits[: len(proposal) + 1]
    logits = constrained(sequence, own, proposal)
    decision = decide(sequence, logits, proposal, position)
    drawn = partial(drawn_from, sequence, logits, proposal, position)
    ranking = rank_decided(sequence, own, decision, drawn)
    sequence.anchor = decision[-1]  # right where nothing was drafted; settle knows
    sequence.launched += 1
    rows = sequence.state.length - position
    return InFlight(
        sequence.cycle,
        position,
        rows,
        proposal,
        decision,
        ranking,
        forward.features,
        *times,
    )


def settle(sequence: Sequence, flight: InFlight) -> TokensCommitted:
    """Read a cycle's decision, commit its run and roll the rest back.

    Raises:
        ModelResultError: the target computed NaN.
    """
    drafted = len(flight.proposal)
    verdict = read(flight.decision, flight.position)
    run = sequence.commit(verdict.run)
    if flight.rows > 1:
        sequence.state.roll_back(flight.position + len(run))
    if drafted:
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
        logprobs=read_ranking(flight.ranking, run),
    )


def draft_sampling(sequence: Sequence) -> DraftSampling:
    """How a drafter draws for the cycle that begins."""
    request = sequence.request
    return DraftSampling(
        temperature=request.sampling.temperature,
        seed=request.seed,
        position=sequence.state.length + 1,
        cycle=sequence.cycle,
        coupled=request.seeded,
        grammar=rules_within(sequence, sequence.drafter.block_size),
    )
