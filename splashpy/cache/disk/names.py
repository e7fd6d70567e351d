# SPDX-License-Identifier: Apache-2.0
"""What records are called: names follow from tokens and models, never from time."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from splashpy.cache.chain import BLOCK, DIGEST_BYTES
from splashpy.cache.disk.directory import RecordKind
from splashpy.cache.stored_run import StoredRun

ROOT = b""
"""The parent of what begins a sequence."""


@dataclass(frozen=True, slots=True)
class Names:
    """Names of one pair's records.

    Attributes:
        target: digest of the target's namespace.
        drafter: digest of the drafter's; empty without one.
    """

    target: bytes
    drafter: bytes = b""

    def namespace(self, kind: RecordKind) -> str:
        """The namespace a record of a kind belongs to."""
        return (self.drafter if kind == "draft" else self.target).hex()

    def state(self, run: StoredRun, position: int) -> bytes:
        """The name of a place of a run."""
        count = position // BLOCK
        parent = run.hashes[count - 1] if count else self.target
        digest = hashlib.blake2b(parent, digest_size=DIGEST_BYTES)
        digest.update(run.tokens[count * BLOCK : position].tobytes())
        digest.update(position.to_bytes(8, "little"))
        return digest.digest()

    def draft(self, state: bytes) -> bytes:
        """The name of the drafter's context at the place of that name."""
        text = self.drafter + state
        return hashlib.blake2b(text, digest_size=DIGEST_BYTES).digest()
