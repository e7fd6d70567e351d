# SPDX-License-Identifier: Apache-2.0
"""Which runs begin as a prompt does."""

from __future__ import annotations

from collections.abc import Iterator

from splashpy.cache.chain import BLOCK, Tokens, block_hashes, shared_length
from splashpy.cache.stored_run import StoredRun


class BlockIndex:
    """Runs by the hashes of their blocks; the root stands for the empty beginning.

    Args:
        root: digest of the namespace.
    """

    def __init__(self, root: bytes):
        self.root = root
        # Each value is a set that keeps the order of what was added.
        self._runs: dict[bytes, dict[StoredRun, None]] = {root: {}}

    @property
    def runs(self) -> list[StoredRun]:
        """Every run, in the order they were added."""
        return list(self._runs[self.root])

    def add(self, run: StoredRun) -> None:
        """Let a run be found."""
        for name in (self.root, *run.hashes):
            self._runs.setdefault(name, {})[run] = None

    def remove(self, run: StoredRun) -> None:
        """Let a run not be found any more."""
        for name in (self.root, *run.hashes):
            found = self._runs[name]
            del found[run]
            if not found and name != self.root:
                del self._runs[name]

    def matches(self, tokens: Tokens) -> Iterator[tuple[StoredRun, int]]:
        """Every run with the tokens it shares with a prompt, the longest first.

        Of two that share equally many, the one added last comes first. Runs are looked
        at as far as the caller goes on asking.
        """
        names = self._names(tokens)
        seen: set[int] = set()
        for name in reversed(names):
            found = [
                (run, shared_length(run.tokens, tokens))
                for run in reversed(self._runs[name])
                if id(run) not in seen
            ]
            seen.update(id(run) for run, _ in found)
            yield from sorted(found, key=lambda pair: -pair[1])

    def _names(self, tokens: Tokens) -> list[bytes]:
        """Names of the beginnings of a prompt that some run has, the shortest first."""
        names = [self.root]
        for name in block_hashes(self.root, tokens):
            if name not in self._runs:
                break
            names.append(name)
        assert len(names) <= 1 + len(tokens) // BLOCK
        return names
