# SPDX-License-Identifier: Apache-2.0
"""Random numbers that depend on where they are used, never on when.

Every draw has an explicit key made from the request's seed, the absolute position of
the token being decided, what the number is for, and, where a position may be drawn
again, the number of the cycle. MLX's global generator is neither read nor advanced,
so skipping or repeating a cycle shifts nothing.

The row of Gumbel noise of one position covers the whole vocabulary. A drafter that
looks at a few candidates gathers their entries, so drafter and target see the same
number for the same token. A row changes with its width: both must ask for the same V.

Source of the mixing function: splitmix64, G. Steele, D. Lea, C. Flood, "Fast
splittable pseudorandom number generators", OOPSLA 2014.
"""

from __future__ import annotations

from enum import IntEnum

import mlx.core as mx

_MASK = 2**64 - 1
_GOLDEN = 0x9E3779B97F4A7C15


class Purpose(IntEnum):
    """What a number decides; streams of different purposes are independent."""

    TOKEN = 0
    """The target's own choice at a position, shared with the drafter when coupled."""
    DRAFT = 1
    """Which candidate a drafter draws."""
    ACCEPT = 2
    """Whether a drafted token stays."""
    RESIDUAL = 3
    """The token after a rejection, or after a fully accepted proposal."""


def gumbel_rows(
    seed: int,
    first_position: int,
    rows: int,
    vocab: int,
    *,
    purpose: Purpose = Purpose.TOKEN,
    cycle: int = 0,
) -> mx.array:
    """Standard Gumbel noise for consecutive positions.

    argmax over v of (log p(v) + noise[i, v]) is a draw from p.

    Args:
        seed: seed of the request; any integer, taken modulo 2^64.
        first_position: absolute position of row 0.
        rows: number of positions.
        vocab: V, entries per row.
        purpose: stream of the draw.
        cycle: number of the cycle, where a position drawn twice needs fresh noise.

    Returns:
        [rows, V] float32, unevaluated.
    """
    if rows == 0:
        return mx.zeros((0, vocab))
    keys = _keys(seed, first_position, rows, purpose, cycle)
    return mx.stack([mx.random.gumbel((vocab,), key=key) for key in keys])


def uniforms(
    seed: int, first_position: int, rows: int, cycle: int, purpose: Purpose
) -> mx.array:
    """Uniform numbers in [0, 1) for consecutive positions.

    Args:
        seed: seed of the request; any integer, taken modulo 2^64.
        first_position: absolute position of entry 0.
        rows: number of positions.
        cycle: number of the cycle.
        purpose: stream of the draw.

    Returns:
        [rows] float32, unevaluated.
    """
    if rows == 0:
        return mx.zeros((0,))
    keys = _keys(seed, first_position, rows, purpose, cycle)
    return mx.stack([mx.random.uniform(key=key) for key in keys])


def mix64(*words: int) -> int:
    """One 64-bit number that changes completely with any bit of any word."""
    state = 0
    for word in words:
        state = _finalise((state ^ (word & _MASK)) + _GOLDEN & _MASK)
    return state


def _finalise(z: int) -> int:
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & _MASK
    z = (z ^ z >> 27) * 0x94D049BB133111EB & _MASK
    return z ^ z >> 31


def _keys(
    seed: int, first_position: int, rows: int, purpose: Purpose, cycle: int
) -> list[mx.array]:
    return [
        mx.random.key(mix64(seed, purpose, first_position + row, cycle))
        for row in range(rows)
    ]
