# SPDX-License-Identifier: Apache-2.0
"""Compare a target at load with the model it stands for, on six tokens.

Our lanes against mlx-lm's own caches, our head over the backbone against the model,
and a recurrence run again against the pass it repeats. What does not hold is done
without: the whole model runs, kept tokens are read again, or the model is refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import mlx.core as mx

from splashpy.errors import ModelKindError
from splashpy.models.architecture import DRAFTABLE
from splashpy.models.state import TargetState
from splashpy.models.target import MlxLmTarget

_ROWS = 6
_FIRST_BLOCK = 4  # where nothing is known, the second must read on from the first

# On a GPU the layout of a buffer may choose another kernel: eight units in the last
# place of a bfloat16, as a fraction of the largest logit.
_ROUNDING = 2.0**-5


def examine(target: MlxLmTarget) -> TargetState:
    """Find out what holds for a target, and let it do without the rest.

    Returns:
        A state that has read a few rows.

    Raises:
        ModelKindError: the model computes something else with its own caches, or asks
            for more than a lane has.
    """
    try:
        expected = _through_caches(target)
        state, ours = _through_lanes(target)
        # A head that is not known must be told from one that is only rounded.
        if target.family not in DRAFTABLE and _gap(ours, expected):
            target.run_whole()
            state, ours = _through_lanes(target)
    except (AttributeError, TypeError) as error:
        raise _refusal(target, f"its layers ask for another cache: {error}") from None
    gap = _gap(ours, expected)
    if not gap <= _ROUNDING:  # also where only one side is a number
        raise _refusal(
            target, f"with its own caches, logits differ by {gap:.1%} of the largest"
        )
    if not state.replays_exactly():
        target.forget_recurrence()
    return state


def _through_caches(target: MlxLmTarget) -> list[mx.array]:
    caches = target.own_caches()
    return [
        target._model(block[None], cache=caches)[0].astype(mx.float32)
        for block in _blocks(target)
    ]


def _through_lanes(target: MlxLmTarget) -> tuple[TargetState, list[mx.array]]:
    state = target.new_state(_ROWS)
    blocks = _blocks(target)
    logits = [target.forward(state, b, rows=b.shape[0]).logits for b in blocks]
    return state, logits


def _blocks(target: MlxLmTarget) -> list[mx.array]:
    ids = mx.arange(_ROWS) % target.facts.vocab_size
    if target.family in DRAFTABLE:
        return [ids]
    return [ids[:_FIRST_BLOCK], ids[_FIRST_BLOCK:]]


def _gap(ours: Sequence[mx.array], theirs: Sequence[mx.array]) -> float:
    """The largest difference, as a fraction of the largest logit.

    Where neither side is a number there is no difference: that the weights compute
    NaN is told elsewhere.
    """
    one, other = mx.concatenate(list(ours)), mx.concatenate(list(theirs))
    if mx.array_equal(one, other, equal_nan=True).item():
        return 0.0
    largest: Any = (mx.abs(one - other).max() / mx.abs(other).max()).item()
    return largest


def _refusal(target: MlxLmTarget, why: str) -> ModelKindError:
    return ModelKindError(
        f"models of mlx_lm.models.{target.family} cannot run here", why=why
    )
