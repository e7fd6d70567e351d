# SPDX-License-Identifier: Apache-2.0
"""What a DFlash drafter remembers of the committed text: keys and values per layer.

Rows lie in time order and belong to known absolute positions, so what a block row sees
follows from positions alone. Only committed positions are appended, and nothing is
ever taken back. A layer with a window slides: its buffer has some spare rows, and when
they are used up the rows still visible move to the front. A layer without a window
doubles its buffer. Either way memory follows the rows held, and a row is copied a
bounded number of times.

The rows of a block are written behind the committed ones for the time of one forward;
the next append overwrites them.

Shapes: H key/value heads, S new context rows, L block rows, d head dimension.
"""

from __future__ import annotations

from collections.abc import Sequence

import mlx.core as mx

_SPARE_ROWS = 256  # a window of 2048 is then copied once in 256 rows
_FIRST_ROWS = 64


class LayerContext:
    """Keys and values of one layer.

    Args:
        window: positions a row sees, itself included; None sees everything.
    """

    def __init__(self, window: int | None):
        self._window = window
        self._keep = None if window is None else window - 1
        self._begin = 0
        self._end = 0
        self._buffers: tuple[mx.array, mx.array] | None = None

    def __len__(self) -> int:
        return self._end - self._begin

    @property
    def bounded(self) -> bool:
        """Whether rows go out of sight."""
        return self._keep is not None

    @property
    def rows(self) -> tuple[mx.array, mx.array]:
        """Keys and values held, oldest first, [1, H, rows, d] each.

        Raises:
            ValueError: nothing was appended yet.
        """
        return self._slice(self._begin, self._end)

    @property
    def arrays(self) -> list[mx.array]:
        """The buffers, for evaluation."""
        return list(self._buffers or ())

    def visible(self, count: int) -> int:
        """How many of ``count`` new rows a later block can still see."""
        return count if self._keep is None else min(count, self._keep)

    def append(self, keys: mx.array, values: mx.array) -> None:
        """Add the rows of the next positions; rows out of sight are dropped.

        Args:
            keys: [1, H, S, d], normed and rotated; S below the window.
            values: [1, H, S, d].
        """
        new = keys.shape[2]
        if self._keep is not None:
            self._begin = max(self._begin, self._end + new - self._keep)
        self._make_room(new, keys)
        self._write(keys, values)
        self._end += new

    def with_block(self, keys: mx.array, values: mx.array) -> tuple[mx.array, mx.array]:
        """The rows held followed by a block's own, which are not kept.

        Args:
            keys: [1, H, L, d].
            values: [1, H, L, d].

        Returns:
            Keys and values, [1, H, rows + L, d] each.
        """
        new = keys.shape[2]
        self._make_room(new, keys)
        self._write(keys, values)
        return self._slice(self._begin, self._end + new)

    def cut(self, rows: int) -> None:
        """Forget the latest ``rows`` rows, or as many as are held."""
        self._end = max(self._end - rows, self._begin)

    def copy(self) -> LayerContext:
        """Another context with copies of the rows, and no spare ones."""
        other = LayerContext(self._window)
        if len(self):
            other.fill([mx.contiguous(array) for array in self.rows])
        return other

    def fill(self, rows: Sequence[mx.array]) -> None:
        """Hold exactly these keys and values, [1, H, S, d] each."""
        keys, values = rows
        self._buffers = (keys, values)
        self._begin, self._end = 0, keys.shape[2]

    def mask(self, rows: int, *, causal: bool) -> mx.array | str | None:
        """What ``rows`` block rows see of the context and of each other.

        Row i, at position a + i, sees the context position p while a + i - p is
        smaller than the window, and the block rows up to itself or, unless ``causal``,
        all of them.

        Returns:
            A boolean [rows, len(self) + rows], or mlx's shorthand for the usual cases.
        """
        held = len(self)
        # The oldest row held is ``held + rows - 1`` positions before the last row.
        if self._window is None or held + rows <= self._window:
            return "causal" if causal else None
        query = mx.arange(rows)[:, None]
        key = mx.arange(-held, rows)[None]
        context = (key < 0) & (query - key < self._window)
        block = (key >= 0) & (key <= query) if causal else key >= 0
        return context | block

    def _slice(self, begin: int, end: int) -> tuple[mx.array, mx.array]:
        if self._buffers is None:
            raise ValueError("no context row was appended yet")
        keys, values = self._buffers
        return keys[:, :, begin:end], values[:, :, begin:end]

    def _write(self, keys: mx.array, values: mx.array) -> None:
        assert self._buffers is not None
        end = self._end + keys.shape[2]
        for buffer, rows in zip(self._buffers, (keys, values), strict=True):
            buffer[:, :, self._end : end] = rows

    def _make_room(self, new: int, like: mx.array) -> None:
        """Let ``new`` rows fit behind the rows held, moving those to the front."""
        if self._buffers is not None:
            if self._end + new <= self._buffers[0].shape[2]:
                return
            held = self.rows
        else:
            held = (like[:, :, :0], like[:, :, :0])
        batch, heads, _, width = like.shape
        free = self._capacity(len(self) + new) - len(self)
        room = mx.zeros((batch, heads, free, width), dtype=like.dtype)
        keys, values = (mx.concatenate([rows, room], axis=2) for rows in held)
        self._buffers = (keys, values)
        self._begin, self._end = 0, len(self)

    def _capacity(self, needed: int) -> int:
        grown = max(2 * needed, _FIRST_ROWS)
        if self._keep is None:
            return grown
        return max(min(grown, self._keep + _SPARE_ROWS), needed)


class DrafterContext:
    """The context of every layer of one drafter, for one sequence.

    Args:
        windows: of each layer; None sees everything.

    Attributes:
        layers: one per drafter layer.
        position: absolute position of the next row, where the anchor stands.
    """

    def __init__(self, windows: Sequence[int | None]):
        self.layers = [LayerContext(window) for window in windows]
        self.position = 0

    def visible(self, count: int) -> int:
        """How many of ``count`` new rows any layer can still see."""
        return max(layer.visible(count) for layer in self.layers)

    @property
    def arrays(self) -> list[mx.array]:
        """Every buffer, for evaluation."""
        return [array for layer in self.layers for array in layer.arrays]

    @property
    def nbytes(self) -> int:
        """Bytes held, spare rows included."""
        return sum(array.nbytes for array in self.arrays)

    @property
    def bounded(self) -> bool:
        """Whether no layer sees more than its window, so that a copy stays small."""
        return all(layer.bounded for layer in self.layers)

    def __len__(self) -> int:
        return max(len(layer) for layer in self.layers)

    def cut(self, length: int) -> None:
        """Forget the positions from ``length`` on.

        A window that has slid may be left with fewer rows than it could see, or none:
        a drafter guesses with those it has.
        """
        for layer in self.layers:
            layer.cut(self.position - length)
        self.position = length

    def copy(self) -> DrafterContext:
        """Another context with copies of the rows."""
        other = DrafterContext(())
        other.layers = [layer.copy() for layer in self.layers]
        other.position = self.position
        return other
