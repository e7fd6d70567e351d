# SPDX-License-Identifier: Apache-2.0
"""Which drafted tokens the target keeps.

The decision is part of the cycle's graph, so that one synchronisation reads all of it:
the target chooses a token for every row, and the draft is kept up to the first
disagreement. What a cycle commits is that prefix and the target's own next choice:
never nothing, never more than the proposal plus one.

Shapes: K drafted tokens, V vocabulary.
"""

from __future__ import annotations

import mlx.core as mx


def choose(scores: mx.array, noise: mx.array | None) -> mx.array:
    """The target's token for every row.

    argmax(score) at temperature 0; argmax(score + G) with Gumbel noise G otherwise,
    which draws from softmax(score). Noise tied to absolute positions makes the draw
    independent of how the text was cut into blocks.

    Args:
        scores: [K + 1, V] from :func:`splashpy.verification.sampling.score`.
        noise: [K + 1, V] Gumbel noise, or None for greedy.

    Returns:
        [K + 1] int32; equal scores go to the lower id.
    """
    scores = scores if noise is None else scores + noise
    return mx.argmax(scores, axis=-1).astype(mx.int32)


def agreement(proposal: mx.array, choices: mx.array) -> mx.array:
    """Length of the draft prefix that equals the target's choices, [] int32.

    Args:
        proposal: [K] int32.
        choices: [K + 1] int32.
    """
    same = (proposal == choices[:-1]).astype(mx.int32)
    return mx.sum(mx.cumprod(same)) if same.shape[0] else mx.array(0)
