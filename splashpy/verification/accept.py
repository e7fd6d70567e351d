# SPDX-License-Identifier: Apache-2.0
"""Which drafted tokens the target keeps.

``choose`` and ``agreement`` build the decision into the graph of the cycle, so that
one synchronisation reads everything; ``accept`` is the same rule on plain numbers, as
read from the device.

Shapes: K drafted tokens, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import mlx.core as mx


@dataclass(frozen=True, slots=True)
class AcceptedRun:
    """What one cycle commits.

    tokens: the accepted draft prefix, then the one token the target chose
        itself. Never empty, never longer than the proposal plus one.
    """

    tokens: tuple[int, ...]

    @property
    def drafted(self) -> int:
        """Committed tokens that came from the draft."""
        return len(self.tokens) - 1


def accept(proposal: Sequence[int], choices: Sequence[int]) -> AcceptedRun:
    """Keep the draft up to the first disagreement with the target's choice.

    Args:
        proposal: K drafted token ids.
        choices: K + 1 token ids; choices[i] is what the target puts after
            proposal[:i].

    Raises:
        ValueError: choices is not one longer than proposal.
    """
    if len(choices) != len(proposal) + 1:
        raise ValueError(
            f"{len(proposal)} drafted tokens need {len(proposal) + 1} target "
            f"choices, got {len(choices)}"
        )
    kept = 0
    while kept < len(proposal) and proposal[kept] == choices[kept]:
        kept += 1
    return AcceptedRun((*proposal[:kept], choices[kept]))


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
