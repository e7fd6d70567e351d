# SPDX-License-Identifier: Apache-2.0
"""A verify pass's logits become one small array the host can read.

Everything the host needs to know about a cycle is packed together, so that reading it
is a single synchronisation; ``kernels/accept.py`` tells its form.

Shapes: K drafted tokens, V vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import mlx.core as mx

from splashpy.drafting.drafter import Proposal
from splashpy.engine.sequence import Sequence
from splashpy.errors import ModelResultError
from splashpy.kernels import gate
from splashpy.kernels.accept import Draft, End, accept_greedy, accept_sampled, pack
from splashpy.kernels.noise import Purpose, gumbel_rows, uniforms
from splashpy.kernels.target_topk import (
    MOST_COUNT,
    Cut,
    Distributions,
    shape_of,
    target_topk,
)
from splashpy.kernels.top_tokens import best_token, broken_rows
from splashpy.verification.accept import choose
from splashpy.verification.rejection import reject
from splashpy.verification.sampling import (
    SamplingParams,
    adjust,
    row_histories,
    score,
)


@dataclass(frozen=True, slots=True)
class Verdict:
    """A decision as read from the device.

    Attributes:
        kept: drafted tokens the target agrees with.
        run: those tokens and the target's own one after them, up to the answer's end.
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
    kept, broken, count, *choices = values
    if broken:
        raise ModelResultError(
            f"the model computed NaN after token {position}",
            fix=["repeat the request; if it recurs, the weights may be damaged"],
        )
    return Verdict(kept, tuple(choices[:count]))


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
        [K + 4] int32.
    """
    request, sampling = sequence.request, sequence.request.sampling
    left = max(1, sequence.budget - sequence.launched)
    end = End(left, request.stop_token_ids)
    history = _history(sequence, logits, proposal, position)
    if sampling.greedy:
        tokens, broken = best_token(adjust(logits, sampling, history))
        return accept_greedy(proposal.token_ids, tokens, broken, end)
    if _is_sparse(sampling, proposal, logits):
        target = target_topk(adjust(logits, sampling, history), _cut(sampling))
        return _sparse_rejection(sequence, target, proposal, position, end)
    scores, broken = score(logits, sampling, history), broken_rows(logits)
    if proposal.probs is not None:
        tokens, count = _rejection(sequence, scores, proposal, position)
        return pack(tokens, count - 1, broken, end)
    # Accepting a fixed token while it equals the target's own draw accepts it with
    # exactly its probability, which is the best any rule can do for a point mass.
    rows, vocab = scores.shape
    noise = gumbel_rows(request.seed, position + 1, rows, vocab)
    return accept_greedy(proposal.token_ids, choose(scores, noise), broken, end)


def drawn_from(
    sequence: Sequence, logits: mx.array, proposal: Proposal, position: int
) -> mx.array:
    """Log-weights whose softmax is what :func:`decide` draws from; same arguments.

    Returns:
        [K + 1, V] float32; at temperature 0 everything is on the best token.
    """
    sampling = sequence.request.sampling
    history = _history(sequence, logits, proposal, position)
    scores = score(logits, sampling, history)
    if not sampling.greedy:
        return scores
    best = mx.argmax(scores, axis=-1, keepdims=True) == mx.arange(scores.shape[-1])
    return mx.where(best, mx.array(0.0), -mx.inf)


def _history(
    sequence: Sequence, logits: mx.array, proposal: Proposal, position: int
) -> mx.array | None:
    """The tokens every row's penalties look back on; None where there are none."""
    sampling = sequence.request.sampling
    if not sampling.looks_back:
        return None
    return row_histories(
        sequence.tokens[:position],
        sequence.anchor,
        proposal.token_ids,
        sampling.penalty_window,
        logits.shape[-1],
    )


def _is_sparse(sampling: SamplingParams, proposal: Proposal, logits: mx.array) -> bool:
    """Whether the few tokens top-k leaves are taken from the logits by a kernel."""
    few = 0 < sampling.top_k <= min(MOST_COUNT, logits.shape[1])
    drawn = proposal.probs is not None
    return drawn and few and gate.allows("target_topk", *shape_of(logits))


def _cut(sampling: SamplingParams) -> Cut:
    return Cut(sampling.temperature, sampling.top_k, sampling.top_p, sampling.min_p)


def _sparse_rejection(
    sequence: Sequence,
    target: Distributions,
    proposal: Proposal,
    position: int,
    end: End,
) -> mx.array:
    assert proposal.candidates is not None
    assert proposal.probs is not None
    draft = Draft(proposal.token_ids, proposal.candidates, proposal.probs)
    numbers = _uniforms(sequence, proposal, position)
    return accept_sampled(draft, target, *numbers, end)


def _rejection(
    sequence: Sequence, scores: mx.array, proposal: Proposal, position: int
) -> tuple[mx.array, mx.array]:
    return reject(
        mx.softmax(scores, axis=-1, precise=True),
        proposal.token_ids,
        proposal.candidates,
        proposal.probs,
        *_uniforms(sequence, proposal, position),
    )


def _uniforms(
    sequence: Sequence, proposal: Proposal, position: int
) -> tuple[mx.array, mx.array]:
    """A number per drafted token, and one for the target's own."""
    seed, cycle, first = sequence.request.seed, sequence.cycle, position + 1
    return (
        uniforms(seed, first, len(proposal), cycle, Purpose.ACCEPT),
        uniforms(seed, first, 1, cycle, Purpose.RESIDUAL)[0],
    )
