# SPDX-License-Identifier: Apache-2.0
"""Whether the layers of a target can read several texts in one pass.

That depends on how mlx-lm wrote them, so it is tried: two texts of different length
take one small pass together and one each, and the logits are compared.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import mlx.core as mx
import mlx.nn as nn

from splashpy.models.together import SharedLayers

if TYPE_CHECKING:
    from splashpy.models.target import MlxLmTarget

_LENGTHS = (3, 6)  # of two texts that share a pass
_ROWS = 2
_CAPACITY = 16
_ALIKE = 0.05  # of the largest logit; rows in 16 bits may be rounded otherwise


def share_layers(
    target: MlxLmTarget, layers: Sequence[nn.Module]
) -> SharedLayers | None:
    """Let texts share passes, if two of different length come out as alone.

    Args:
        target: to be changed.
        layers: its decoder layers.

    Returns:
        The changed layers; None, and nothing is changed, where texts cannot share.
    """
    for apart in (False, True):
        shared = SharedLayers(layers, apart=apart)
        try:
            if _come_out_as_alone(target):
                return shared
        except Exception:  # noqa: BLE001 - whatever a family's own code does not take
            target.forget_pass()
        shared.remove()
    return None


def _come_out_as_alone(target: MlxLmTarget) -> bool:
    vocab = target.facts.vocab_size
    prompts = [mx.arange(length) * 7 % vocab for length in _LENGTHS]
    block = mx.arange(2 * _ROWS).reshape(2, _ROWS) * 11 % vocab
    together, alone = ([target.new_state(_CAPACITY) for _ in prompts] for _ in range(2))
    for state, ids in zip([*together, *alone], prompts * 2, strict=True):
        target.forward(state, ids, rows=0)
    ours = [each.logits for each in target.pass_together(together, block)]
    theirs = [
        target.forward(state, ids, rows=_ROWS).logits
        for state, ids in zip(alone, block, strict=True)
    ]
    return _alike(mx.stack(ours), mx.stack(theirs))


def _alike(ours: mx.array, theirs: mx.array) -> bool:
    gap = mx.abs(ours - theirs).max()
    return bool((gap <= _ALIKE * mx.abs(theirs).max()).item())
