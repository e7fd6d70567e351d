# SPDX-License-Identifier: Apache-2.0
"""Log-probabilities of the tokens of one request, computed where they are asked for."""

from __future__ import annotations

from collections.abc import Callable

import mlx.core as mx

from splashpy.engine.sequence import Sequence
from splashpy.kernels.accept import HEAD
from splashpy.verification.logprobs import (
    Ranking,
    TokenLogprob,
    rank,
    read_ranking,
)


def rank_decided(
    sequence: Sequence,
    logits: mx.array,
    decision: mx.array,
    drawn: Callable[[], mx.array],
) -> Ranking:
    """What a decision chose, ranked in the graph that made it.

    Args:
        sequence: whose request may ask for it.
        logits: [K + 1, V] float32, the target's own.
        decision: from ``decision.decide``; token j was decided by row j.
        drawn: gives what it was drawn from, for requests that want this instead.
    """
    count = sequence.request.logprobs
    if count is None:
        return ()
    logits = drawn() if sequence.request.logprobs_drawn else logits
    return rank(logits, decision[HEAD:], min(count, logits.shape[-1]))


def rank_prompt(sequence: Sequence, logits: mx.array, position: int) -> Ranking:
    """The tokens of the prompt that follow the rows of a chunk.

    Args:
        sequence: whose request may ask for it.
        logits: [n, V] float32, of the prompt's rows from ``position`` on.
        position: of the chunk's first row.
    """
    count = sequence.request.prompt_logprobs
    if count is None:
        return ()
    following = _following(sequence, position, logits.shape[0])
    if not following:
        return ()
    rows = logits[: len(following)]
    ids = mx.array(following, dtype=mx.int32)
    return rank(rows, ids, min(count, logits.shape[-1]))


def read_prompt(
    sequence: Sequence, ranking: Ranking, position: int, rows: int
) -> tuple[TokenLogprob, ...]:
    """What :func:`rank_prompt` ranked; nothing came before the prompt's first token."""
    if sequence.request.prompt_logprobs is None:
        return ()
    found = read_ranking(ranking, _following(sequence, position, rows))
    if position:
        return found
    return (TokenLogprob(sequence.request.token_ids[0], None), *found)


def _following(sequence: Sequence, position: int, rows: int) -> tuple[int, ...]:
    return sequence.request.token_ids[position + 1 : position + rows + 1]
