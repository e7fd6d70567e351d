# SPDX-License-Identifier: Apache-2.0
"""What a cycle commits, decided where the logits are.

Greedy: the draft stays up to the first token that is not the target's choice. Sampled:
token d of slot i stays while u_i q_i(d) < p_i(d); the first that does not is replaced
by a draw from max(p_i - q_i, 0), and a whole draft is followed by a draw from p. What
is committed is then cut by the tokens still wanted and after the first stop token.

Everything is packed into one small array, so that reading it is one synchronisation:
[kept, broken, count, token 0 .. token K]. The first ``count`` tokens are committed;
``kept`` of the draft agree with the target, cut or not; ``broken`` is 1 if a row that
decided had a logit that is not a number. Tokens after the first ``kept`` + 1 mean
nothing.

Shapes: K drafted tokens, C candidates of a draft's row, W tokens of a target's row.
Source: Y. Leviathan, M. Kalman, Y. Matias, "Fast inference from transformers via
speculative decoding", ICML 2023.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import mlx.core as mx

from splashpy.kernels import gate, metal
from splashpy.kernels.target_topk import Distributions

HEAD = 3
"""Numbers before the tokens of a decision."""

_GREEDY = metal.Kernel(
    name="accept_greedy",
    files=("accept",),
    inputs=("proposal", "choices", "broken", "stops", "budget"),
    outputs=("decision",),
    body="""
    if (thread_position_in_grid.x == 0)
      accept_greedy_at<DRAFTED, STOPS>(proposal, choices, broken, stops, decision,
                                       int(budget));
    """,
)
_SAMPLED = metal.Kernel(
    name="accept_sampled",
    files=("accept",),
    inputs=(
        *("proposal", "candidates", "drawn_from", "ids", "probs", "broken"),
        *("uniforms", "last_uniform", "stops", "budget"),
    ),
    outputs=("decision",),
    body="""
    if (thread_position_in_grid.x == 0)
      accept_sampled_at<DRAFTED, STOPS, KEPT, COUNT>(
          proposal, candidates, drawn_from, ids, probs, broken, uniforms, stops,
          decision, last_uniform, int(budget));
    """,
)
_NO_STOP = -1


@dataclass(frozen=True, slots=True)
class End:
    """Where an answer ends.

    Attributes:
        budget: tokens still wanted, at least 1.
        stops: ids after which nothing follows.
    """

    budget: int
    stops: Collection[int] = ()

    @property
    def stop_ids(self) -> list[int]:
        """The ids, sorted; one that no token has where there are none."""
        return sorted(self.stops) or [_NO_STOP]


@dataclass(frozen=True, slots=True)
class Draft:
    """A drawn proposal.

    Attributes:
        token_ids: [K] int32.
        candidates: [K, C] int32, what each token was drawn from.
        probs: [K, C] float32, the distribution it was drawn from.
    """

    token_ids: mx.array
    candidates: mx.array
    probs: mx.array


def accept_greedy(
    proposal: mx.array, choices: mx.array, broken: mx.array, end: End
) -> mx.array:
    """Keep a draft while it is what the target chose.

    Args:
        proposal: [K] int32.
        choices: [K + 1] int32, the target's token of every row.
        broken: [K + 1] bool, whether a row has a logit that is not a number.
        end: where the answer ends.

    Returns:
        [K + 4] int32, the decision.

    Raises:
        ValueError: the lengths do not agree.
    """
    drafted = proposal.shape[0]
    _check(drafted, choices, broken)
    if drafted and gate.allows("accept", drafted):
        return _greedy_metal(proposal, choices, broken, end)
    kept = agreement(proposal, choices)
    return pack(choices, kept, broken, end)


def accept_sampled(
    draft: Draft,
    target: Distributions,
    uniforms: mx.array,
    last_uniform: mx.array,
    end: End,
) -> mx.array:
    """Keep a drawn draft so that the text has exactly the target's distribution.

    The random numbers must be independent of each other and of the draft.

    Args:
        draft: tokens and what they were drawn from.
        target: K + 1 rows.
        uniforms: [K] in [0, 1), one per drafted token.
        last_uniform: [] in [0, 1), for the target's own token.
        end: where the answer ends.

    Returns:
        [K + 4] int32, the decision.

    Raises:
        ValueError: the lengths do not agree.
    """
    drafted = draft.token_ids.shape[0]
    _check(drafted, target.ids, target.broken)
    if drafted and gate.allows("accept", drafted):
        return _sampled_metal(draft, target, uniforms, last_uniform, end)
    return _sampled_reference(draft, target, uniforms, last_uniform, end)


def agreement(proposal: mx.array, choices: mx.array) -> mx.array:
    """Length of the draft prefix that equals the target's choices, [] int32.

    Args:
        proposal: [K] int32.
        choices: [K + 1] int32.
    """
    return _prefix(proposal == choices[:-1])


def pack(tokens: mx.array, kept: mx.array, broken: mx.array, end: End) -> mx.array:
    """A decision from what was kept.

    Args:
        tokens: [K + 1] int32, of which the first ``kept`` + 1 count.
        kept: [] int32.
        broken: [K + 1] bool, whether a row has a logit that is not a number.
        end: where the answer ends.

    Returns:
        [K + 4] int32.
    """
    places = mx.arange(tokens.shape[0])
    bad = mx.any(broken & (places <= kept)).astype(mx.int32)
    count = mx.minimum(kept + 1, end.budget)
    if end.stops:
        ends = mx.any(tokens[:, None] == mx.array(end.stop_ids), axis=-1)
        first = mx.min(mx.where(ends, places + 1, tokens.shape[0] + 1))
        count = mx.minimum(count, first)
    head = mx.stack([kept.astype(mx.int32), bad, count.astype(mx.int32)])
    return mx.concatenate([head, tokens.astype(mx.int32)])


def _check(drafted: int, rows: mx.array, broken: mx.array) -> None:
    if rows.shape[0] != drafted + 1 or broken.shape[0] != drafted + 1:
        raise ValueError(
            f"{drafted} drafted tokens need {drafted + 1} rows of the target, got "
            f"{rows.shape[0]} and {broken.shape[0]}"
        )


def _prefix(stays: mx.array) -> mx.array:
    """How many are true before the first that is not, [] int32."""
    if not stays.shape[0]:
        return mx.array(0, dtype=mx.int32)
    return mx.sum(mx.cumprod(stays.astype(mx.int32))).astype(mx.int32)


def _sampled_reference(
    draft: Draft,
    target: Distributions,
    uniforms: mx.array,
    last_uniform: mx.array,
    end: End,
) -> mx.array:
    drafted = draft.token_ids.shape[0]
    kept = mx.array(0, dtype=mx.int32)
    row_ids, row = target.ids[0], target.probs[0]
    tokens = mx.zeros(0, dtype=mx.int32)
    if drafted:
        ids = draft.token_ids[:, None]
        q_of_draft = mx.sum(mx.where(draft.candidates == ids, draft.probs, 0), axis=-1)
        known = target.ids[:drafted] == ids
        p_of_draft = mx.sum(mx.where(known, target.probs[:drafted], 0), axis=-1)
        kept = _prefix(uniforms * q_of_draft < p_of_draft)
        row_ids, row = target.ids[kept], target.probs[kept]
        slot = mx.minimum(kept, drafted - 1)
        same = draft.candidates[slot][None] == row_ids[:, None]
        removed = mx.sum(mx.where(same, draft.probs[slot][None], 0), axis=-1)
        residual = mx.maximum(row - mx.where(kept < drafted, removed, 0), 0)
        # Rounding can leave nothing where p equals q.
        row = mx.where(mx.sum(residual) > 0, residual, row)
        tokens = draft.token_ids
    own = row_ids[_drawn(row, last_uniform)]
    padded = mx.concatenate([tokens, own[None]])
    run = mx.where(mx.arange(drafted + 1) < kept, padded, own)
    return pack(run, kept, target.broken, end)


def _drawn(weights: mx.array, uniform: mx.array) -> mx.array:
    """The first place whose cumulative weight exceeds ``uniform`` of the total."""
    cumulative = mx.cumsum(weights)
    possible = weights > 0
    above = (cumulative > uniform * cumulative[-1]) & possible
    last = weights.shape[0] - 1 - mx.argmax(possible[::-1])
    return mx.where(mx.any(above), mx.argmax(above), last)


def _greedy_metal(
    proposal: mx.array, choices: mx.array, broken: mx.array, end: End
) -> mx.array:
    stops = end.stop_ids
    return metal.build(_GREEDY)(
        inputs=[proposal, choices, broken, mx.array(stops), end.budget],
        template=[("DRAFTED", proposal.shape[0]), ("STOPS", len(stops))],
        grid=(metal.SIMD_WIDTH, 1, 1),
        threadgroup=(metal.SIMD_WIDTH, 1, 1),
        output_shapes=[(proposal.shape[0] + 1 + HEAD,)],
        output_dtypes=[mx.int32],
    )[0]


def _sampled_metal(
    draft: Draft,
    target: Distributions,
    uniforms: mx.array,
    last_uniform: mx.array,
    end: End,
) -> mx.array:
    stops, drafted = end.stop_ids, draft.token_ids.shape[0]
    return metal.build(_SAMPLED)(
        inputs=[
            *(draft.token_ids, draft.candidates, draft.probs),
            *(target.ids, target.probs, target.broken),
            *(uniforms, last_uniform, mx.array(stops), end.budget),
        ],
        template=[
            ("DRAFTED", drafted),
            ("STOPS", len(stops)),
            ("KEPT", target.ids.shape[1]),
            ("COUNT", draft.candidates.shape[1]),
        ],
        grid=(metal.SIMD_WIDTH, 1, 1),
        threadgroup=(metal.SIMD_WIDTH, 1, 1),
        output_shapes=[(drafted + 1 + HEAD,)],
        output_dtypes=[mx.int32],
    )[0]
