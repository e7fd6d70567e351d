# SPDX-License-Identifier: Apache-2.0
"""One cycle of several texts: drafts of each, one pass of the target, one reading.

Every text keeps its own sampler, its own draft and its own roll back. The pass has as
many rows of each text as the longest draft needs; what a shorter one leaves is filled
with the anchor's token, judged by nobody and rolled back.
"""

from __future__ import annotations

from collections.abc import Sequence as Many
from time import perf_counter

import mlx.core as mx

from splashpy.drafting.drafter import Proposal, SharesCycles
from splashpy.engine.cycle import InFlight, draft_sampling, judge
from splashpy.engine.sequence import Sequence
from splashpy.errors import SplashError
from splashpy.models.target import Target


def launch_together(
    sequences: Many[Sequence], target: Target, most: int
) -> list[InFlight | SplashError]:
    """One cycle of every text, evaluated when this returns.

    Args:
        sequences: whose last cycles are settled.
        target: of all of them.
        most: tokens to draft for each.

    Returns:
        For every text its cycle, or the error that ends that text alone.
    """
    refused = [_refusal(each) for each in sequences]
    able = [s for s, error in zip(sequences, refused, strict=True) if error is None]
    flights = iter(_launch(able, target, most) if able else ())
    return [next(flights) if error is None else error for error in refused]


def _refusal(sequence: Sequence) -> SplashError | None:
    """Why a text has no memory to go on; None where it has."""
    try:
        sequence.cover()
    except SplashError as error:
        return error
    return None


def _launch(
    sequences: Many[Sequence], target: Target, most: int
) -> list[InFlight | SplashError]:
    started = perf_counter()
    positions = [sequence.state.length for sequence in sequences]
    proposals = [_propose(sequence, most) for sequence in sequences]
    drafted_at = perf_counter()
    longest = max(map(len, proposals))
    block = mx.stack(
        [
            _padded(sequence.anchor, proposal, longest)
            for sequence, proposal in zip(sequences, proposals, strict=True)
        ]
    )
    forwards = target.forward_together([each.state for each in sequences], block)
    flights: list[InFlight | SplashError] = []
    for each in zip(sequences, proposals, forwards, positions, strict=True):
        try:
            flights.append(judge(*each, (started, drafted_at)))
        except SplashError as error:
            flights.append(error)
    launched = [each for each in flights if isinstance(each, InFlight)]
    mx.eval([(each.decision, *each.ranking) for each in launched])
    return flights


def expected_tokens(sequence: Sequence) -> list[float]:
    """Tokens a cycle of a text would commit with 0, 1, 2 ... drafts."""
    drafter, state = sequence.drafter, sequence.drafter_state
    if isinstance(drafter, SharesCycles):
        tokens = drafter.expected(state)
    else:  # nothing is known: as many as it wants to
        tokens = [1.0 + count for count in range(drafter.block_size)]
    return tokens[: max(sequence.budget - sequence.launched, 1)]


def _propose(sequence: Sequence, most: int) -> Proposal:
    sequence.cycle += 1
    limit = min(sequence.budget - sequence.launched - 1, most)
    drafter = sequence.drafter
    shares = isinstance(drafter, SharesCycles)
    propose = drafter.propose_shared if shares else drafter.propose
    return propose(
        sequence.drafter_state, sequence.anchor, limit, draft_sampling(sequence)
    )


def _padded(anchor: mx.array, proposal: Proposal, longest: int) -> mx.array:
    """[longest + 1] token ids of one text."""
    filling = mx.broadcast_to(anchor, (longest - len(proposal),))
    return mx.concatenate([anchor[None], proposal.token_ids, filling])
