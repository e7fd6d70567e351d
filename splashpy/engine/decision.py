# SPDX-License-Identifier: Apache-2.0
"""A verify pass's logits become one small array the host can read.

Everything the host needs to know about a cycle is packed together, so that reading it
is a single synchronisation: [kept, broken, token 0 .. token K].

Shapes: K drafted tokens, V vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import mlx.core as mx

from splashpy.drafting.drafter import Proposal
from splashpy.engine.sequence import Sequence
from splashpy.errors import ModelResultError
from splashpy.kernels.noise import Purpose, gumbel_rows, uniforms
from splashpy.verification.accept import agreement, choose
from splashpy.verification.rejection import reject
from splashpy.verification.sampling import row_histories, score


@dataclass(frozen=True, slots=True)
class Verdict:
    """A decision as read from the device.

    Attributes:
        kept: drafted tokens the target agrees with.
        run: those tokens and the target's own one after them.
    """

    kept: int
    run: tuple[int, ...]


def read(decision: mx.array, position: int) -> Verdict:
    """Wait for a decision: the only synchronisation of its cycle.

    Args:
        decision: from :func:`decide`.
        position: absolute position of the anchor it was made after.

    Raises:
        ModelResultError: the target computed NaN.
    """
    values: Any = decision.tolist()
    kept, broken, *choices = values
    if broken:
        raise ModelResultError(
            f"the model computed NaN after token {position}",
            fix=["repeat the request; if it recurs, the weights may be damaged"],
        )
    return Verdict(kept, tuple(choices[: kept + 1]))


def decide(
    sequence: Sequence, logits: mx.array, proposal: Proposal, position: int
) -> mx.array:
    """The target's verdict on a proposal, unevaluated.

    Args:
        sequence: whose sampling applies.
        logits: [K + 1, V] float32; row j follows the anchor and j drafted tokens.
        proposal: what was drafted.
        position: absolute position of the anchor.

    Returns:
        [K + 3] int32: how many drafted tokens are kept; 1 if a logit is NaN; then the
        tokens to commit, of which the first kept + 1 count.
    """
    request = sequence.request
    history = None
    if request.sampling.looks_back:
        history = row_histories(
            sequence.tokens[:position],
            sequence.anchor,
            proposal.token_ids,
            request.sampling.penalty_window,
            logits.shape[-1],
        )
    scores = score(logits, request.sampling, history)
    if proposal.probs is not None and not request.sampling.greedy:
        tokens, count = _rejection(sequence, scores, proposal, position)
        kept = count - 1
    else:
        tokens = choose(scores, _noise(sequence, scores, position))
        kept = agreement(proposal.token_ids, tokens)
    # A row after the first one that disagrees decides nothing.
    rows = mx.any(mx.isnan(logits), axis=-1)
    broken = mx.any(rows & (mx.arange(rows.shape[0]) <= kept))
    head = mx.stack([kept.astype(mx.int32), broken.astype(mx.int32)])
    return mx.concatenate([head, tokens])


def _noise(sequence: Sequence, scores: mx.array, position: int) -> mx.array | None:
    """Noise of the positions decided; a point mass needs no other random number.

    Accepting a fixed token while it equals the target's own draw accepts it with
    exactly its probability, which is the best any rule can do for a point mass.
    """
    if sequence.request.sampling.greedy:
        return None
    rows, vocab = scores.shape
    return gumbel_rows(sequence.request.seed, position + 1, rows, vocab)


def _rejection(
    sequence: Sequence, scores: mx.array, proposal: Proposal, position: int
) -> tuple[mx.array, mx.array]:
    seed, cycle = sequence.request.seed, sequence.cycle
    first, drafted = position + 1, len(proposal)
    return reject(
        mx.softmax(scores, axis=-1, precise=True),
        proposal.token_ids,
        proposal.candidates,
        proposal.probs,
        uniforms(seed, first, drafted, cycle, Purpose.ACCEPT),
        uniforms(seed, first, 1, cycle, Purpose.RESIDUAL)[0],
    )
