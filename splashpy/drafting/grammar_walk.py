# SPDX-License-Identifier: Apache-2.0
"""A path through a selector's candidates that stays inside a grammar.

The walk of ``kernels/candidate_selector.py`` on the host, slot by slot, among the
candidates that may follow the tokens chosen so far. Probabilities are those of the
remaining candidates, from which the token really was drawn. Where no candidate of a
slot may follow, or none has a number for a score, the path ends.

Shapes: K slots, C candidates, n slots of the path.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from splashpy.drafting.drafter import Rules


@dataclass(frozen=True, slots=True)
class Scores:
    """A lattice as the host reads it.

    Attributes:
        candidates: [K, C] int32 token ids.
        first: [C] float32, scores of slot 0.
        following: [K - 1, C, C] float32; entry [s, a, b] scores candidate b of slot
            s + 1 after candidate a of slot s.
    """

    candidates: NDArray[np.int32]
    first: NDArray[np.float32]
    following: NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Path:
    """What a walk chose.

    Attributes:
        token_ids: [n].
        probs: [n, C] float32, what every token was drawn from; zeros in a greedy walk
            but for the token.
    """

    token_ids: list[int]
    probs: NDArray[np.float32]


def walk_within(
    scores: Scores,
    grammar: Rules,
    temperature: float = 0.0,
    noise: NDArray[np.float32] | None = None,
) -> Path:
    """Choose a path.

    Args:
        scores: of the candidates.
        grammar: at the anchor; not changed.
        temperature: 0 takes the best candidate of every slot.
        noise: [K, C] Gumbel noise, needed above temperature 0.
    """
    ahead, chosen = grammar.fork(), -1
    tokens: list[int] = []
    probs = np.zeros(scores.candidates.shape, np.float32)
    for slot, ids in enumerate(scores.candidates):
        row = scores.first if chosen < 0 else scores.following[slot - 1, chosen]
        possible = ahead.allows(ids.tolist()) & ~np.isnan(row)
        row = np.where(possible, row, -np.inf)
        if row.max() == -np.inf:
            break
        if noise is None or temperature == 0:
            chosen = int(row.argmax())
            probs[slot, chosen] = 1.0
        else:
            row = (row - row.max()) / temperature
            chosen = int((row + noise[slot]).argmax())
            probs[slot] = np.exp(row) / np.exp(row).sum()
        tokens.append(int(ids[chosen]))
        ahead.consume(tokens[-1:])
    return Path(tokens, probs[: len(tokens)])
