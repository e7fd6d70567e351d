# SPDX-License-Identifier: Apache-2.0
"""What one recurrent layer remembers: its state, replaced at every pass.

Such a state cannot be shortened. A lane holds on to the state before the last block,
by reference, and can go back to it at no cost. What it was after some row inside the
block must be computed: ``gated_delta.py`` runs only the recurrence again, from what
the block put into it; for layers it does not know, ``state.py`` reads the kept tokens
again.
"""

from __future__ import annotations

from collections.abc import Sequence

import mlx.core as mx

from splashpy.models.attention_lanes import Snapshot

Arrays = tuple[mx.array | None, ...]
"""What a layer keeps; None before its first row."""


class LaneRecurrent:
    """The state of one recurrent layer, in mlx-lm's form.

    Args:
        size: arrays the layer keeps.

    Attributes:
        offset: rows read.
        start: rows read before the last block.
        before: the arrays before the last block.
    """

    lengths = None
    left_padding = None
    row_nbytes = 0

    def __init__(self, size: int):
        self.offset = self.start = 0
        self._arrays: list[mx.array | None] = [None] * size
        self.before: Arrays = tuple(self._arrays)

    def __getitem__(self, index: int) -> mx.array | None:
        return self._arrays[index]

    def __setitem__(self, index: int, value: mx.array | None) -> None:
        self._arrays[index] = value

    def advance(self, rows: int) -> None:
        """A layer read ``rows`` rows; :meth:`finish` counts them."""

    def make_mask(self, rows: int) -> None:
        """No row is padding."""

    def begin(self) -> None:
        """A pass begins: what is held now is the state before its block."""
        self.start = self.offset
        self.before = tuple(self._arrays)

    def finish(self, rows: int) -> None:
        """A pass has read a block of ``rows`` rows."""
        self.offset = self.start + rows

    def reaches(self, length: int) -> bool:
        """Whether this lane alone goes back to ``length`` rows: an end of the block."""
        return length in (self.start, self.offset)

    def roll_back(self, length: int) -> None:
        """Keep the first ``length`` rows.

        Raises:
            ValueError: the row is not an end of the last block.
        """
        if not self.reaches(length):
            raise ValueError(
                f"cannot keep {length} of {self.offset} rows of a recurrent state: "
                f"the last block begins at {self.start}"
            )
        if length < self.offset:
            self._arrays = list(self.before)
        self.offset = length

    def replace(self, length: int, arrays: Sequence[mx.array]) -> None:
        """Keep ``length`` rows: ``arrays`` are the state after them."""
        self._arrays = list(arrays)
        self.offset = length

    def snapshot(self) -> Snapshot:
        """The position and the arrays themselves: a pass never changes one."""
        return self.offset, tuple(self._arrays)

    def restore(self, snapshot: Snapshot) -> None:
        """Come back to a snapshot, whatever was read since."""
        self.offset, arrays = snapshot
        self._arrays = list(arrays)
        self.begin()

    def rows(self, start: int, end: int) -> list[mx.array]:
        """Nothing: a state belongs to one position, and to a snapshot."""
        return []

    def append(self, rows: Sequence[mx.array]) -> None:
        """Nothing, as :meth:`rows`."""

    def load(self, length: int, arrays: Sequence[mx.array]) -> None:
        """Stand at ``length`` with the state after that many rows."""
        self.restore((length, tuple(arrays)))

    def branch(self, length: int, capacity: int, snapshot: Snapshot) -> LaneRecurrent:
        """Another lane with the same arrays, which nobody changes.

        Args:
            length: rows it has read.
            capacity: not needed.
            snapshot: taken at that length; None where this lane stands there.
        """
        lane = LaneRecurrent(len(self._arrays))
        lane.restore(snapshot or self.snapshot())
        return lane

    @property
    def arrays(self) -> list[mx.array]:
        """The state, for evaluation."""
        return [array for array in self._arrays if array is not None]

    @property
    def held(self) -> list[mx.array]:
        """Every array that takes memory: the state, and the one before the block."""
        return [a for a in (*self._arrays, *self.before) if a is not None]
