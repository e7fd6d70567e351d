# SPDX-License-Identifier: Apache-2.0
"""What one text may take of the memory, claimed before it takes it.

Rows lie in buffers that are larger than the text (``models/attention_lanes.py``), so
what counts is how many rows the buffers will have. Where there is less than that, they
grow in small steps, so that a text can fill the context it was planned for. One that
cannot be cut anywhere also keeps copies of its windows and recurrent states; two of
them are in the plan, any further one is kept only where nobody has to give up something
for it, and goes before the text would be refused.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from splashpy.engine.memory_ledger import MemoryLedger
from splashpy.models.state import TargetState
from splashpy.units import format_tokens

COPIES = 4
"""Of windows and recurrent states in the plan.

The running one, the one before its last block, and two places to come back to.
"""

_PLACES = COPIES - 2


@dataclass(frozen=True, slots=True)
class LaneSize:
    """Bytes of a text, as the plan counts them.

    Attributes:
        row: of one token.
        fixed: of everything that does not grow, with the copies in the plan.
    """

    row: int = 0
    fixed: int = 0


class LaneClaim:
    """The claim of one text.

    Args:
        ledger: it is made of.
        size: of texts of this model.
    """

    def __init__(self, ledger: MemoryLedger, size: LaneSize):
        self._ledger, self._size = ledger, size
        self._rows = ledger.claim("lanes")
        self._places = ledger.claim("states")

    @property
    def nbytes(self) -> int:
        """What is claimed now."""
        return self._rows.nbytes + self._places.nbytes

    def cover(self, state: TargetState, rows: int) -> None:
        """Claim what a state takes once it has read some rows more.

        Args:
            state: of the text.
            rows: at most so many are appended before this is called again.

        Raises:
            ShortageError: there is less.
        """
        wanted = self._bytes(state.reserved(rows))
        if wanted <= self._rows.nbytes:
            return
        # What a text took over from an earlier one is not taken once more.
        self._rows.hold(max(self._rows.nbytes, min(state.nbytes, wanted)))
        if not self._ledger.make_room(wanted - self._rows.nbytes):
            state.grow_tightly()
        room = state.reserved(rows)
        if not self._ledger.make_room(self._bytes(room) - self._rows.nbytes):
            self._give_up_places(state)
        self._rows.cover(self._bytes(room), _context_of(room))

    def expect(self, rows: int) -> None:
        """Return if a text of so many rows could run, at least alone.

        Raises:
            CapacityError: it never could.
        """
        self._ledger.expect(self._bytes(rows), _context_of(rows))

    def own(self, state: TargetState, counted: Collection[int] = ()) -> None:
        """Claim what a state holds already, taken over or copied.

        Args:
            state: of the text.
            counted: arrays somebody else counts, by identity.
        """
        kept = state.kept
        own = sum(size for array, size in kept.items() if array not in counted)
        planned = self._size.fixed // COPIES * _PLACES
        held = state.nbytes - sum(kept.values())
        self._rows.hold(max(self._rows.nbytes, held))
        self._places.hold(max(self._places.nbytes, own - planned))

    def fits(self, rows: int) -> bool:
        """Whether so many rows fit where nobody gives anything up."""
        return self._ledger.fits(self._bytes(rows))

    def make_room(self, rows: int) -> bool:
        """Whether a text could have so many rows once others gave something up."""
        return self._ledger.make_room(self._bytes(rows) - self._rows.nbytes)

    def may_keep(self, state: TargetState) -> bool:
        """Whether one more place to come back to may be kept; claims it if so."""
        if state.cut_anywhere or len(state.checkpoints) < _PLACES:
            return True
        copy = self._size.fixed // COPIES
        if not self._ledger.fits(copy):
            return False
        self._places.hold(self._places.nbytes + copy)
        return True

    def release(self) -> None:
        """Claim nothing; may be called twice."""
        self._rows.release()
        self._places.release()

    def _give_up_places(self, state: TargetState) -> None:
        """Keep the latest places only, which are in the plan."""
        if self._places.nbytes:
            for length in state.checkpoints[:-_PLACES]:
                state.forget(length)
            self._places.release()

    def _bytes(self, rows: int) -> int:
        return self._size.fixed + rows * self._size.row


def _context_of(rows: int) -> str:
    return f"{format_tokens(rows)} tokens of context"


def unlimited() -> LaneClaim:
    """The claim of a text that runs where memory is nobody's concern."""
    return LaneClaim(MemoryLedger(), LaneSize())
