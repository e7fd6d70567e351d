# SPDX-License-Identifier: Apache-2.0
"""The progress bars of huggingface_hub as one count of bytes."""

from __future__ import annotations

from typing import Any

from splashpy.package.progress import Cancelled, CancelledError, Progress
from splashpy.protocol import LoadProgress


class Tally:
    """Turns huggingface_hub's progress bars into one count of bytes.

    It draws several bars over the same bytes (received, written); the furthest one is
    reported. A bar is also the place where a wish to stop can be raised.

    Args:
        total: bytes of all files.
        item: what they are called in the progress.
        progress: phase ``download``, in bytes.
        cancelled: polled with every piece.
    """

    def __init__(self, total: int, item: str, progress: Progress, cancelled: Cancelled):
        self._total = total
        self._item = item
        self._progress = progress
        self._cancelled = cancelled
        self._furthest = 0

    def advance(self, count: int) -> None:
        """A bar that counts bytes has reached ``count``."""
        if self._cancelled():
            raise CancelledError
        self._furthest = min(max(self._furthest, count), self._total)
        self._progress(
            LoadProgress(
                phase="download",
                done=self._furthest,
                total=self._total,
                unit="bytes",
                item=self._item,
            )
        )

    def bar_class(self) -> type:
        """A class with as much of tqdm's interface as huggingface_hub uses."""
        tally = self

        class Bar:
            def __init__(self, *_: Any, **options: Any):
                self.counts_bytes = options.get("unit") == "B"
                self.total = options.get("total")
                self.n = options.get("initial", 0)
                self.format_dict: dict[str, Any] = {"rate": None}

            def update(self, count: float | None = 1) -> None:
                self.n += int(count or 0)
                tally.advance(self.n if self.counts_bytes else 0)

            def __enter__(self) -> Bar:
                return self

            def __exit__(self, *_: object) -> None:
                pass

            def __getattr__(self, _: str) -> Any:
                return lambda *_, **__: None  # every way to draw: nothing is drawn

        return Bar
