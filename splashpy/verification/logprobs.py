# SPDX-License-Identifier: Apache-2.0
"""How likely the target itself found a token, and which others it found likely.

Log-probabilities are of the target's own distribution: float32 log-softmax of the
logits of the row that decided the token, before bias, penalties, masks and
temperature. A verify pass computes that row for accepted drafts too, so a token has
the same numbers however it came to be.

Shapes: R rows, V vocabulary, C alternatives.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import mlx.core as mx

from splashpy.kernels.top_tokens import top_tokens

LEAST = -9999.0
"""Stands for a probability of zero, which JSON cannot hold as a logarithm."""


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """One token in the eyes of the target.

    Attributes:
        token_id: the token.
        logprob: natural logarithm of its probability; None for a token nothing came
            before.
        top: the most likely ids and their logarithms, most likely first; equal ones
            by id.
    """

    token_id: int
    logprob: float | None
    top: tuple[tuple[int, float], ...] = ()


Ranking = tuple[mx.array, ...]
"""What :func:`rank` returns; empty where nobody asked."""


def rank(logits: mx.array, token_ids: mx.array, count: int) -> Ranking:
    """Log-probabilities of one token of each row and of the row's most likely ones.

    Args:
        logits: [R, V] float32, the target's own.
        token_ids: [R] int32; an id that is none is answered for another token.
        count: C, at most V.

    Returns:
        Unevaluated: [R] float32; ids [R, C] int32 and [R, C] float32.
    """
    total = mx.logsumexp(logits, axis=-1, keepdims=True)
    ids = mx.clip(token_ids, 0, logits.shape[-1] - 1)[:, None]
    own = (mx.take_along_axis(logits, ids, axis=-1) - total)[:, 0]
    if not count:
        return own, mx.zeros((len(own), 0), dtype=mx.int32), mx.zeros((len(own), 0))
    best, values = top_tokens(logits, count)
    return own, best, values - total


def read_ranking(
    ranking: Ranking, token_ids: Sequence[int]
) -> tuple[TokenLogprob, ...]:
    """What was ranked, for the first rows.

    Args:
        ranking: from :func:`rank`; waits for it.
        token_ids: the tokens of these rows, as they were given to ``rank``.
    """
    if not ranking:
        return ()
    own: Any
    best: Any
    values: Any
    own, best, values = (array[: len(token_ids)].tolist() for array in ranking)
    return tuple(
        TokenLogprob(
            token,
            max(own[row], LEAST),
            tuple(
                (id_, max(value, LEAST))
                for id_, value in zip(best[row], values[row], strict=True)
            ),
        )
        for row, token in enumerate(token_ids)
    )
