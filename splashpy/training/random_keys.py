# SPDX-License-Identifier: Apache-2.0
"""Random keys that depend on what is drawn, never on what was drawn before.

A run that goes on at step n draws what an uninterrupted one draws there, so a
checkpoint needs no state of a generator.
"""

from __future__ import annotations

from enum import IntEnum

import mlx.core as mx

_PRIME = 1_000_003


class Stream(IntEnum):
    """What a number is for."""

    ORDER = 0
    """The order of the examples in an epoch."""
    ANCHORS = 1
    """Where the blocks of an example begin."""
    WEIGHTS = 2
    """New weights."""
    QUESTIONS = 3
    """The questions of a shard."""
    ANSWERS = 4
    """The first answers of a shard; later turns follow."""


def key_of(seed: int, stream: int, index: int) -> mx.array:
    """A key for one draw."""
    return mx.random.key(((seed * _PRIME + stream) * _PRIME + index) % 2**63)
