# SPDX-License-Identifier: Apache-2.0
"""DFlash 2's choice of one path through the best candidates of consecutive slots.

Every slot has its own C best tokens. A token's score is its own logit plus how well it
follows the token chosen one slot earlier: a sum over R products of the predecessor's
codebook row, the slot's gate and the successor's codebook row. All scores between
neighbouring candidates are computed at once; the walk then only picks rows.

Candidates are ordered by logit, equal logits by id, and equal scores go to the first
candidate, so the path is the same on every device.

Shapes: K slots, V vocabulary, C candidates, R selector rank.
Source: ``CandidateSelector.select`` in dflash 0.1.0, model_mlx.py (MIT), with sums in
float32.
"""

from __future__ import annotations

from dataclasses import dataclass

import mlx.core as mx

# Two small sorts replace one of the whole vocabulary: first the blocks with the
# largest maxima, then the tokens of those blocks.
_BLOCK = 128


@dataclass(frozen=True, slots=True)
class Lattice:
    """Scores between neighbouring candidates.

    Attributes:
        first: [C] float32, scores of slot 0 after the anchor.
        following: [K - 1, C, C] float32; entry [s, a, b] is the score of candidate b
            of slot s + 1 after candidate a of slot s.
    """

    first: mx.array
    following: mx.array

    def row(self, slot: int, previous: mx.array | None) -> mx.array:
        """Scores of a slot's candidates after the one chosen before, [C]."""
        return self.first if previous is None else self.following[slot - 1, previous]


def top_candidates(logits: mx.array, count: int) -> tuple[mx.array, mx.array]:
    """The largest logits of every row.

    Args:
        logits: [K, V], any float dtype.
        count: C, at most V.

    Returns:
        ids [K, C] int32 and values [K, C] float32, largest first; equal values in
        order of their ids.

    Raises:
        ValueError: C exceeds V.
    """
    rows, vocab = logits.shape
    if count > vocab:
        raise ValueError(f"{count} candidates of {vocab} tokens")
    values = logits.astype(mx.float32)
    if vocab <= 2 * count * _BLOCK:
        return _sorted_largest(values, mx.arange(vocab)[None], count)
    # A token among the C largest lies in a block among those with the C largest
    # maxima: each block before its own holds a larger token.
    blocks = mx.pad(
        values, [(0, 0), (0, -vocab % _BLOCK)], constant_values=-mx.inf
    ).reshape(rows, -1, _BLOCK)
    chosen, _ = top_candidates(blocks.max(axis=-1), count)
    ids = (chosen[..., None] * _BLOCK + mx.arange(_BLOCK)).reshape(rows, -1)
    inside = mx.take_along_axis(blocks, chosen[..., None], axis=1).reshape(rows, -1)
    return _sorted_largest(inside, ids, count)


def build_lattice(
    unary: mx.array,
    candidates: mx.array,
    anchor: mx.array,
    gate: mx.array,
    codebooks: tuple[mx.array, mx.array],
) -> Lattice:
    """Scores of all transitions.

    score_s(a, b) = unary[s,b] + sum over r of P[a,r] * gate[s,r] * S[b,r].

    Args:
        unary: [K, C] float32 logits of the candidates.
        candidates: [K, C] int32 ids.
        anchor: [] int32, the token before slot 0.
        gate: [K, R] projected hidden rows.
        codebooks: predecessor P and successor S, each [V, R].

    Raises:
        ValueError: the shapes do not agree.
    """
    slots, count = unary.shape
    predecessor, successor = codebooks
    if candidates.shape != unary.shape or gate.shape != (slots, successor.shape[1]):
        raise ValueError(
            f"{slots} slots of {count} candidates need ids {unary.shape} and a gate "
            f"{(slots, successor.shape[1])}, got {candidates.shape} and {gate.shape}"
        )
    after = successor[candidates].astype(mx.float32)
    weights = gate.astype(mx.float32)[:, None, :]
    first = weights[0] * predecessor[anchor[None]].astype(mx.float32)
    before = weights[1:] * predecessor[candidates[:-1]].astype(mx.float32)
    return Lattice(
        first=unary[0] + (first @ after[0].T)[0],
        following=unary[1:, None, :] + before @ after[1:].swapaxes(1, 2),
    )


def walk_greedy(lattice: Lattice) -> mx.array:
    """Take the best candidate after the one taken before.

    Returns:
        [K] int32, the index of the candidate chosen in every slot.
    """
    path: list[mx.array] = []
    for slot in range(lattice.following.shape[0] + 1):
        path.append(mx.argmax(lattice.row(slot, path[-1] if path else None)))
    return mx.stack(path).astype(mx.int32)


def walk_look_ahead(lattice: Lattice) -> mx.array:
    """Take the path with the largest expected number of accepted tokens.

    The softmax of a slot's scores stands for the chance that a candidate is accepted:
    V_s(a) = max over b of q_s(b | a) * (1 + V_{s+1}(b)), with nothing after the last
    slot. Deterministic, so its path is a point mass.

    Returns:
        [K] int32, the index of the candidate chosen in every slot.
    """
    ahead = mx.zeros_like(lattice.first)
    best_after: list[mx.array] = []
    for scores in [*reversed(list(lattice.following)), lattice.first[None]]:
        expected = mx.softmax(scores, axis=-1) * (1 + ahead)
        best_after.append(mx.argmax(expected, axis=-1))
        ahead = expected.max(axis=-1)
    path = [best_after.pop()[0]]
    while best_after:
        path.append(best_after.pop()[path[-1]])
    return mx.stack(path).astype(mx.int32)


def walk_sampled(
    lattice: Lattice, temperature: float | mx.array, noise: mx.array
) -> tuple[mx.array, mx.array]:
    """Draw every candidate from softmax(score / temperature) after the one before.

    Args:
        lattice: the scores.
        temperature: above 0.
        noise: [K, C] Gumbel noise of every candidate.

    Returns:
        [K] int32, the index of the candidate drawn in every slot, and [K, C] float32,
        the distribution each was drawn from.
    """
    path: list[mx.array] = []
    probs: list[mx.array] = []
    for slot in range(lattice.following.shape[0] + 1):
        scores = lattice.row(slot, path[-1] if path else None)
        # Relative to the best, so that a tiny temperature leaves room for the noise.
        scores = (scores - scores.max()) / temperature
        path.append(mx.argmax(scores + noise[slot]))
        probs.append(mx.softmax(scores))
    return mx.stack(path).astype(mx.int32), mx.stack(probs)


def _sorted_largest(
    values: mx.array, ids: mx.array, count: int
) -> tuple[mx.array, mx.array]:
    """The ``count`` largest values, equal ones by id; no two sort keys are equal."""
    bits = (values + 0.0).view(mx.uint32)  # + 0.0: minus zero equals zero
    negative = bits >> 31 == 1
    ascending = mx.where(negative, ~bits, bits | 0x80000000).astype(mx.uint64)
    keys = (ascending << 32) | (~ids.astype(mx.uint32)).astype(mx.uint64)
    places = mx.argpartition(keys, -count, axis=-1)[..., -count:]
    order = mx.argsort(mx.take_along_axis(keys, places, axis=-1), axis=-1)
    places = mx.take_along_axis(places, order, axis=-1)[..., ::-1]
    ids = mx.broadcast_to(ids, values.shape)
    return (
        mx.take_along_axis(ids, places, axis=-1).astype(mx.int32),
        mx.take_along_axis(values, places, axis=-1),
    )
