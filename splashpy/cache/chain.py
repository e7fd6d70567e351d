# SPDX-License-Identifier: Apache-2.0
"""Names of beginnings: a hash for every full block of a sequence of token ids.

Block i covers 256 tokens, and its hash covers those before it as well: two sequences
with the same hash at block i begin with the same (i + 1) * 256 tokens, of the same
model. The root is the namespace's digest, so nothing of one model is found by
another. Hashes only find candidates; equal token ids decide.
"""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Iterator, Sequence

import numpy as np

BLOCK = 256
"""Tokens of a block."""

DIGEST_BYTES = 32

_ITEM_BYTES = 4
_NO_MEDIA = bytes(DIGEST_BYTES)  # digest of the images a block overlaps: none

Tokens = array
"""Token ids as unsigned 32-bit numbers: ``array("I")``."""


def pack(token_ids: Sequence[int]) -> Tokens:
    """Token ids in the form the cache keeps and compares."""
    if isinstance(token_ids, array) and token_ids.typecode == "I":
        return token_ids
    packed = array("I", token_ids)
    assert packed.itemsize == _ITEM_BYTES
    return packed


def block_hashes(root: bytes, tokens: Tokens) -> Iterator[bytes]:
    """The hash of every full block, one after the other, as far as anyone asks.

    Args:
        root: digest of the namespace.
        tokens: of the sequence, little-endian as on every supported machine.
    """
    data = memoryview(tokens).cast("B")
    size = BLOCK * _ITEM_BYTES
    previous = root
    for start in range(0, len(tokens) // BLOCK * size, size):
        digest = hashlib.blake2b(previous, digest_size=DIGEST_BYTES)
        digest.update(data[start : start + size])
        digest.update(_NO_MEDIA)
        previous = digest.digest()
        yield previous


def shared_length(ours: Tokens, theirs: Tokens) -> int:
    """How many tokens two sequences have in common at their beginning."""
    shorter = min(len(ours), len(theirs))
    one, other = (np.frombuffer(a, np.uint32, shorter) for a in (ours, theirs))
    differs = one != other
    first = int(differs.argmax()) if shorter else 0
    return first if shorter and differs[first] else shorter
