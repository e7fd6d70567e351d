# SPDX-License-Identifier: Apache-2.0
"""Two texts that grow side by side in a terminal."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from itertools import accumulate
from time import perf_counter
from typing import TYPE_CHECKING

from splashpy.cli.output import Stream, cells, fit

if TYPE_CHECKING:
    from splashpy.bench.race import Runner

ROWS = 16  # lines of text shown of each lane
_SECONDS = 0.1  # between two redraws
_GAP = " │ "


class Lanes:
    """Draws a race in place and leaves its last picture behind.

    Args:
        stream: a terminal.
        columns: its width.
    """

    def __init__(self, stream: Stream, columns: int):
        self._stream = stream
        self._width = (columns - len(_GAP)) // 2
        self._drawn = 0
        self._last = 0.0

    def show(self, plain: Runner, drafts: Runner) -> None:
        """Draw both texts, at most ten times a second; the end always."""
        ended = plain.finished and drafts.finished
        if ended or perf_counter() - self._last >= _SECONDS:
            self._draw(plain, drafts)

    def _draw(self, plain: Runner, drafts: Runner) -> None:
        self._last = perf_counter()
        lanes = [self._lane(runner) for runner in (plain, drafts)]
        rows = [_GAP.join(pair) for pair in zip(*lanes, strict=True)]
        up = f"\x1b[{self._drawn}A" if self._drawn else ""
        clear = "\x1b[K\n"
        self._stream.write(up + clear.join(rows) + clear)
        self._drawn = len(rows)

    def _lane(self, runner: Runner) -> list[str]:
        speed = len(runner.token_ids) / runner.seconds if runner.seconds else 0.0
        state = "done" if runner.finished else "…"
        head = f"{runner.name}: {len(runner.token_ids)} tok · {speed:.1f} tok/s {state}"
        lines = [
            piece
            for line in self._stream.safe(runner.text).expandtabs(4).splitlines()
            for part in textwrap.wrap(line, self._width) or [""]
            for piece in _folded(part, self._width)
        ]
        shown = [head, "─" * self._width, *lines[-ROWS:]]
        shown += [""] * (ROWS + 2 - len(shown))
        return [fit(line, self._width) for line in shown]


def _folded(text: str, width: int) -> Iterator[str]:
    """Pieces of at most ``width`` columns, where wide characters made it longer."""
    while cells(text) > width:
        end = sum(total <= width for total in accumulate(map(cells, text)))
        yield text[:end]
        text = text[end:]
    yield text
