# SPDX-License-Identifier: Apache-2.0
"""Keep drafted tokens so that the text has exactly the target's distribution.

A drafted token d, drawn from a distribution q, stays with probability
min(1, p(d) / q(d)), where p is the target's processed distribution at its position.
The first one that does not stay is replaced by a draw from max(p - q, 0), and a draft
that stays as a whole is followed by a draw from p. Whatever q is, as long as d really
was drawn from it given the tokens before, the text is distributed as if the target
alone had written it.

q lives on a few candidates, so the subtraction touches those entries of one row only.
Everything stays in the graph of the cycle.

Shapes: K drafted tokens, C candidates, V vocabulary.
Source: Y. Leviathan, M. Kalman, Y. Matias, "Fast inference from transformers via
speculative decoding", ICML 2023.
"""

from __future__ import annotations

import mlx.core as mx


def reject(
    p: mx.array,
    token_ids: mx.array,
    candidates: mx.array | None,
    probs: mx.array | None,
    uniforms: mx.array,
    last_uniform: mx.array,
) -> tuple[mx.array, mx.array]:
    """What a cycle commits when the target samples.

    The random numbers must be independent of each other and of the draft.

    Args:
        p: [K + 1, V] float32; row i is the distribution of the token after the anchor
            and i drafted tokens.
        token_ids: [K] int32, the draft.
        candidates: [K, C] int32, what each token was drawn from; None when the draft
            is a point mass.
        probs: [K, C] float32, the distribution it was drawn from; None likewise.
        uniforms: [K] in [0, 1), one per drafted token.
        last_uniform: [] in [0, 1), for the target's own token.

    Returns:
        [K + 1] int32, the kept draft followed by the target's own token, which fills
        the rest; and [] int32, how many of them count, at least 1.

    Raises:
        ValueError: the shapes do not agree.
    """
    drafted = token_ids.shape[0]
    _check(p, token_ids, candidates, probs, uniforms)
    if not drafted:
        return draw(p[0], last_uniform)[None], mx.array(1, dtype=mx.int32)
    if candidates is None or probs is None:
        candidates, probs = token_ids[:, None], mx.ones((drafted, 1))

    ids = token_ids[:, None]
    q_of_draft = mx.sum(mx.where(candidates == ids, probs, 0), axis=-1)
    p_of_draft = mx.take_along_axis(p[:drafted], ids, axis=-1)[:, 0]
    stays = (uniforms * q_of_draft < p_of_draft).astype(mx.int32)
    kept = mx.sum(mx.cumprod(stays)).astype(mx.int32)

    row, slot = p[kept], mx.minimum(kept, drafted - 1)
    removed = mx.where(kept < drafted, probs[slot], 0)
    residual = mx.maximum(row.at[candidates[slot]].add(-removed), 0)
    # Rounding can leave nothing where p equals q.
    residual = mx.where(mx.sum(residual) > 0, residual, row)
    own = draw(residual, last_uniform)
    padded = mx.concatenate([token_ids, token_ids[-1:]])
    return mx.where(mx.arange(drafted + 1) < kept, padded, own), kept + 1


def draw(weights: mx.array, uniform: mx.array) -> mx.array:
    """The first id whose cumulative weight exceeds ``uniform`` times the total.

    Args:
        weights: [V] float32, not negative, not all zero.
        uniform: [] in [0, 1).

    Returns:
        [] int32, an id whose weight is above zero.
    """
    cumulative = mx.cumsum(weights)
    possible = weights > 0  # a parallel sum may rise at an entry that adds nothing
    above = (cumulative > uniform * cumulative[-1]) & possible
    last_possible = weights.shape[0] - 1 - mx.argmax(possible[::-1])
    chosen = mx.where(mx.any(above), mx.argmax(above), last_possible)
    return chosen.astype(mx.int32)


def _check(
    p: mx.array,
    token_ids: mx.array,
    candidates: mx.array | None,
    probs: mx.array | None,
    uniforms: mx.array,
) -> None:
    drafted = token_ids.shape[0]
    if p.shape[0] != drafted + 1 or uniforms.shape != (drafted,):
        raise ValueError(
            f"{drafted} drafted tokens need {drafted + 1} rows of p and {drafted} "
            f"uniforms, got {p.shape[0]} and {uniforms.shape}"
        )
    if (candidates is None) != (probs is None):
        raise ValueError("candidates and their probabilities come together")
    if candidates is None or probs is None:
        return
    if candidates.shape != probs.shape or candidates.shape[0] != drafted:
        raise ValueError(
            f"{drafted} drafted tokens need as many rows of candidates and "
            f"probabilities, got {candidates.shape} and {probs.shape}"
        )
