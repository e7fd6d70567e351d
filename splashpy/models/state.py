# SPDX-License-Identifier: Apache-2.0
"""What a target remembers of one sequence: append, roll back, come back, measure.

A *lane* is the memory of one layer (``attention_lanes.py``, ``recurrent_lane.py``). It
answers the calls mlx-lm's layers make on a cache and adds what speculation needs: a
capacity known in advance and an exact roll back.

Attention without a window can be cut at any row. A window or a recurrent state can go
back into the last block, or to a *checkpoint*: a row at which what cannot be cut was
kept. Where that is worth its memory is decided elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import mlx.core as mx

from splashpy.models.attention_lanes import LaneKV, LaneList, LaneRotKV, Snapshot
from splashpy.models.gated_delta import Replay
from splashpy.models.recurrent_lane import LaneRecurrent

Lane = LaneKV | LaneRotKV | LaneList | LaneRecurrent

Read = Callable[["TargetState", mx.array], None]
"""Let the target's layers read token ids [L] into a state."""

BLOCK_ROWS = 64
"""Rows of the longest pass that may be taken back in part."""


@dataclass(frozen=True, slots=True)
class _Block:
    """The last pass, if it may be taken back in part.

    Attributes:
        first: its first row.
        token_ids: [L].
        replay: runs its recurrences again; None where they are not known.
    """

    first: int
    token_ids: mx.array
    replay: Replay | None


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Where a state can come back to.

    Attributes:
        length: rows held there.
        snapshots: of every lane.
    """

    length: int
    snapshots: tuple[Snapshot, ...]


class TargetState:
    """The lanes of one sequence, always of one length.

    Args:
        lanes: in the order the target's layers expect them.
        read: reads tokens again where a lane cannot be shortened; None where every
            lane can.

    Attributes:
        cut_anywhere: every row is a way back, so that checkpoints are not needed.
    """

    def __init__(self, lanes: Sequence[Lane], read: Read | None = None):
        self.lanes = list(lanes)
        self._read = read
        self._recurrent = [a for a in self.lanes if isinstance(a, LaneRecurrent)]
        self.cut_anywhere = all(isinstance(a, LaneKV | LaneList) for a in self.lanes)
        self._checkpoints: list[Checkpoint] = []
        self._block: _Block | None = None

    @property
    def length(self) -> int:
        """Rows held, the same in every lane."""
        return self.lanes[0].offset

    @property
    def nbytes(self) -> int:
        """Bytes held, those of checkpoints included."""
        return sum(self.held.values())

    @property
    def held(self) -> dict[int, int]:
        """Bytes of every array held, by identity: states may share some."""
        held = {id(a): a.nbytes for lane in self.lanes for a in lane.held}
        return held | self.kept

    @property
    def kept(self) -> dict[int, int]:
        """Of those, the arrays of checkpoints."""
        return {id(a): a.nbytes for a in self._kept}

    def reserved(self, more: int) -> int:
        """Rows there is room for once ``more`` were appended; 0 where none are held."""
        return next((lane.reserved(more) for lane in self._growing), 0)

    def grow_tightly(self) -> None:
        """Memory is short: from now on take few rows ahead, and grow more often."""
        for lane in self._growing:
            lane.grow_tightly()

    @property
    def _growing(self) -> list[LaneKV | LaneList]:
        return [a for a in self.lanes if isinstance(a, LaneKV | LaneList)]

    @property
    def row_nbytes(self) -> int:
        """Bytes each further row takes."""
        return sum(lane.row_nbytes for lane in self.lanes)

    @property
    def arrays(self) -> list[mx.array]:
        """Every buffer; evaluating them completes a prefill chunk."""
        return [array for lane in self.lanes for array in lane.arrays] + self._kept

    def begin(self) -> None:
        """A pass of the target begins."""
        for lane in self._recurrent:
            lane.begin()

    def finish(self, token_ids: mx.array, replay: Replay | None = None) -> None:
        """A pass read a block that may be taken back in part.

        Args:
            token_ids: [L] of the pass.
            replay: runs its recurrences again; None where they are not known.
        """
        rows = token_ids.shape[0]
        for lane in self._recurrent:
            lane.finish(rows)
        self._block = _Block(self.length - rows, token_ids, replay)

    def finish_chunk(self, rows: int) -> None:
        """A pass read ``rows`` rows of a prompt, which nobody takes back in part."""
        for lane in self._recurrent:
            lane.finish(rows)
            lane.begin()
        self._block = None

    @property
    def checkpoints(self) -> tuple[int, ...]:
        """Rows that were kept as ways back, in order."""
        return tuple(point.length for point in self._checkpoints)

    def keep(self) -> None:
        """Let this row be a way back; evaluates the copies that takes."""
        if not self.cut_anywhere and self.length not in self.checkpoints:
            snapshots = tuple(lane.snapshot() for lane in self.lanes)
            # A lazy copy would keep the whole buffer it is taken from alive.
            mx.eval(_arrays(snapshots))
            self._checkpoints.append(Checkpoint(self.length, snapshots))

    def kept_at(self, length: int) -> list[list[mx.array]]:
        """The arrays of the checkpoint at ``length`` rows, for every lane.

        Raises:
            ValueError: there is no checkpoint there.
        """
        for point in self._checkpoints:
            if point.length == length:
                return [_arrays([snapshot]) for snapshot in point.snapshots]
        raise ValueError(f"nothing was kept at row {length}")

    def stand_at(self, length: int, kept: Sequence[Sequence[mx.array]]) -> None:
        """Make a state whose rows are in one that has read ``length`` rows.

        Args:
            length: of the checkpoint.
            kept: its arrays from :meth:`kept_at`; none for lanes that hold rows.
        """
        for lane, arrays in zip(self.lanes, kept, strict=True):
            if arrays:
                lane.load(length, arrays)
        self.keep()

    def forget(self, length: int) -> None:
        """Give up the checkpoint at ``length`` rows, if there is one."""
        self._checkpoints = [c for c in self._checkpoints if c.length != length]

    def adopt(self, other: TargetState) -> None:
        """Take up the checkpoints of a state that has read the same tokens."""
        ours = {point.length: point for point in other._before(self.length)}
        ours |= {point.length: point for point in self._checkpoints}
        self._checkpoints = [ours[length] for length in sorted(ours)]

    def rest(self) -> None:
        """Give up the way back into the last block, and the memory that takes."""
        self._block = None
        for lane in self._recurrent:
            lane.begin()

    def branch(self, length: int, capacity: int) -> TargetState:
        """Another state that holds the first ``length`` rows; evaluates its copies.

        What nobody ever changes is shared, everything else copied.

        Args:
            length: from :meth:`nearest`, not inside the last block.
            capacity: rows to reserve.
        """
        kept = self._before(length)
        at_point = bool(kept) and kept[-1].length == length
        snapshots = kept[-1].snapshots if at_point else [None] * len(self.lanes)
        lanes = [
            lane.branch(length, capacity, snapshot)
            for lane, snapshot in zip(self.lanes, snapshots, strict=True)
        ]
        state = TargetState(lanes, self._read)
        state._checkpoints = kept
        mx.eval(state.arrays)
        return state

    def replays_exactly(self) -> bool:
        """Whether replaying the whole last block gives what its pass left."""
        if self._block is None or self._block.replay is None:
            return False
        before = [lane.before for lane in self._recurrent]
        again = self._block.replay(before, self.length - self._block.first)
        return all(
            mx.array_equal(ours, theirs, equal_nan=True).item()
            for lane, arrays in zip(self._recurrent, again, strict=True)
            for ours, theirs in zip(lane.arrays, arrays, strict=True)
        )

    def nearest(self, length: int) -> int:
        """The largest number of rows, at most ``length``, to which a roll back goes.

        0 where nothing of what is held can be used.
        """
        length = min(length, self.length)
        if self._reaches(length) or self._inside_block(length):
            return length
        return max((c.length for c in self._before(length)), default=0)

    def roll_back(self, length: int) -> None:
        """Forget every row from ``length`` on; evaluates nothing.

        Raises:
            ValueError: fewer than ``length`` rows are held, or there is no way back.
        """
        kept = self._before(length)
        if self._reaches(length):
            for lane in self.lanes:
                lane.roll_back(length)
        elif self._inside_block(length):
            self._cut_block(length)
        elif kept and kept[-1].length == length:
            for lane, snapshot in zip(self.lanes, kept[-1].snapshots, strict=True):
                lane.restore(snapshot)
            self._block = None
        else:
            raise ValueError(
                f"cannot keep {length} of {self.length} rows: the nearest way back "
                f"is row {self.nearest(length)}"
            )
        self._checkpoints = kept

    @property
    def _kept(self) -> list[mx.array]:
        return [a for point in self._checkpoints for a in _arrays(point.snapshots)]

    def _reaches(self, length: int) -> bool:
        return all(lane.reaches(length) for lane in self.lanes)

    def _before(self, length: int) -> list[Checkpoint]:
        return [point for point in self._checkpoints if point.length <= length]

    def _inside_block(self, length: int) -> bool:
        block = self._block
        if block is None or not block.first < length < self.length:
            return False
        return block.replay is not None or self._read is not None

    def _cut_block(self, length: int) -> None:
        """Keep the block's rows before ``length``, where a state cannot be cut."""
        block = self._block
        assert block is not None
        rows = length - block.first
        if block.replay is None:
            assert self._read is not None
            for lane in self.lanes:
                lane.roll_back(block.first)
            self._read(self, block.token_ids[:rows])
            return
        before = [lane.before for lane in self._recurrent]
        after = block.replay(before, rows)
        for lane, arrays in zip(self._recurrent, after, strict=True):
            lane.replace(length, arrays)
        for lane in self.lanes:
            lane.roll_back(length)


def _arrays(snapshots: Sequence[Snapshot]) -> list[mx.array]:
    found: list[mx.array] = []
    for part in snapshots:
        if isinstance(part, mx.array):
            found.append(part)
        elif isinstance(part, tuple):
            found += _arrays(part)
    return found
