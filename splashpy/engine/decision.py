# SPDX-License-Identifier: Apache-2.0
"""A verify pass's logits become one small array the host can read.

Everything the host needs to know about a cycle is packed together, so that reading it
is a single synchronisation: [kept, broken, choice 0 .. choice K].

Shapes: K drafted tokens, V vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import mlx.core as mx

from splashpy.drafting.drafter import Proposal
from splashpy.engine.sequence import Sequence
from splashpy.errors import ModelResultError
from splashpy.kernels.noise import gumbel_rows
from splashpy.verification.accept import agreement, choose
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
        [K + 3] int32: how many drafted tokens are kept; 1 if a logit is NaN; the
        target's choice after each row.
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
    noise = None
    if not request.sampling.greedy:
        rows, vocab = logits.shape
        noise = gumbel_rows(request.seed, position + 1, rows, vocab)
    choices = choose(scores, noise)
    kept = agreement(proposal.token_ids, choices)
    broken = mx.any(mx.isnan(logits))
    head = mx.stack([kept.astype(mx.int32), broken.astype(mx.int32)])
    return mx.concatenate([head, choices])
