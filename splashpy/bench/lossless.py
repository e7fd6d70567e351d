# SPDX-License-Identifier: Apache-2.0
"""Does speculation change the text? Decode twice, compare, explain a difference.

Decoding with drafts and without must give the same tokens, greedily and for one seed:
the token drawn is that of the largest logit plus a noise that depends on the seed and
the position alone. Verification computes several rows at once and plain decoding one;
where the two use different kernels they round differently, so two tokens that are
practically tied may swap. At the first difference the plain logits are computed again,
and the gap between the two tokens, noise included, decides: a tie within rounding, or
a mismatch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import mlx.core as mx

from splashpy.bench.session import GREEDY, Draw, Session
from splashpy.kernels.noise import gumbel_rows

Outcome = Literal["identical", "tie", "mismatch"]

_TIE_ULPS = 2
# Bits of a logit that another order of summation leaves alone: all of a bfloat16's
# mantissa, and what tens of thousands of float32 additions leave of theirs.
_BITS_KEPT = {mx.bfloat16: 7, mx.float16: 7, mx.float32: 15}


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """One prompt decoded twice.

    Attributes:
        outcome: what the comparison says.
        tokens: answer tokens of the plain run.
        drafted: tokens proposed in the other run; 0 makes the comparison worthless.
        accepted: proposed tokens that were kept.
        at: index of the first differing answer token; None when identical.
        plain_token: what plain decoding put there; -1 past its end.
        drafted_token: what decoding with drafts put there; -1 past its end.
        gap: plain logit of the first minus that of the second; 0 when identical.
        tolerance: gap up to which the two count as tied.
        seed: of both runs; None where nothing was drawn.
    """

    outcome: Outcome
    tokens: int
    drafted: int = 0
    accepted: int = 0
    at: int | None = None
    plain_token: int = -1
    drafted_token: int = -1
    gap: float = 0.0
    tolerance: float = 0.0
    seed: int | None = None


def compare(
    session: Session,
    token_ids: tuple[int, ...],
    *,
    max_tokens: int,
    draw: Draw = GREEDY,
    cancelled: Callable[[], bool] = lambda: False,
) -> Comparison:
    """Decode one prompt with drafts and without.

    Args:
        session: a loaded model.
        token_ids: the prompt.
        max_tokens: answer tokens at most.
        draw: how tokens are picked, in both runs.
        cancelled: asked between cycles; a cancelled comparison covers what exists.
    """
    drafted, plain = (
        session.answer(
            token_ids, drafter, max_tokens=max_tokens, draw=draw, cancelled=cancelled
        )
        for drafter in (session.drafter, session.plain)
    )
    return replace(
        explain(session, token_ids, plain.token_ids, drafted.token_ids, draw),
        drafted=drafted.drafted,
        accepted=drafted.accepted,
        seed=draw.seed,
    )


def explain(
    session: Session,
    token_ids: tuple[int, ...],
    plain: Sequence[int],
    drafted: Sequence[int],
    draw: Draw = GREEDY,
) -> Comparison:
    """Compare two answers to one prompt; says why they differ where they do."""
    at = first_difference(plain, drafted)
    if at is None:
        return Comparison(outcome="identical", tokens=len(plain))
    ours = plain[at] if at < len(plain) else -1
    theirs = drafted[at] if at < len(drafted) else -1
    if min(ours, theirs) < 0:  # same tokens, but one run went on: no rounding does that
        return Comparison(
            outcome="mismatch",
            tokens=len(plain),
            at=at,
            plain_token=ours,
            drafted_token=theirs,
            gap=math.inf,
        )
    logits = plain_logits(session, (*token_ids, *plain[:at]))
    picked = logits + _noise(draw, len(token_ids) + at, logits.shape[0])
    top, gap = _numbers(mx.max(logits), picked[ours] - picked[theirs])
    tolerance = tie_tolerance(top, logits_dtype(session))
    return Comparison(
        outcome="tie" if abs(gap) <= tolerance else "mismatch",
        tokens=len(plain),
        at=at,
        plain_token=ours,
        drafted_token=theirs,
        gap=gap,
        tolerance=tolerance,
    )


def first_difference(first: Sequence[int], second: Sequence[int]) -> int | None:
    """Index of the first place where two texts differ; None when they are equal."""
    for index, (ours, theirs) in enumerate(zip(first, second, strict=False)):
        if ours != theirs:
            return index
    return None if len(first) == len(second) else min(len(first), len(second))


def plain_logits(session: Session, token_ids: tuple[int, ...]) -> mx.array:
    """[V] float32 logits after a text whose last token is computed alone."""
    target = session.target
    state = target.new_state(len(token_ids))
    *before, last = token_ids
    if before:
        target.forward(state, mx.array(before, dtype=mx.int32), rows=0)
        mx.eval(state.arrays)
    return target.forward(state, mx.array([last], dtype=mx.int32), rows=1).logits[0]


def logits_dtype(session: Session) -> mx.Dtype:
    """What the target computes in."""
    return session.target.embed(mx.array([0])).dtype


def _noise(draw: Draw, position: int, vocab: int) -> mx.array:
    """What is added to the logits [V] of the token at ``position``, in their scale."""
    if draw.seed is None:
        return mx.zeros(vocab)
    return draw.temperature * gumbel_rows(draw.seed, position, 1, vocab)[0]


def _numbers(*arrays: mx.array) -> list[float]:
    numbers: Any = [array.item() for array in arrays]
    return numbers


def tie_tolerance(top: float, dtype: mx.Dtype) -> float:
    """Two units in the last place that rounding leaves alone, at the top logit."""
    exponent = math.floor(math.log2(max(abs(top), 2.0**-14)))
    return _TIE_ULPS * 2.0 ** (exponent - _BITS_KEPT[dtype])
