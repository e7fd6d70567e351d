# SPDX-License-Identifier: Apache-2.0
"""Which token the target chooses for every row.

The choice is part of the cycle's graph, so that one synchronisation reads all of it;
``kernels/accept.py`` keeps the draft up to the first disagreement. What a cycle commits
is that prefix and the target's own next choice: never nothing, never more than the
proposal plus one.

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
