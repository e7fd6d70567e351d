# SPDX-License-Identifier: Apache-2.0
"""How far work is, on one line of stderr.

On a terminal the line is redrawn in place and cleared at the end. Elsewhere there is
one line for each phase and at most one every ten seconds, so that a log stays short.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from splashpy.cli.output import Stream, cut
from splashpy.units import format_bytes, format_seconds

if TYPE_CHECKING:
    from splashpy.protocol import LoadProgress

PHASES = {
    "resolve": "finding the model",
    "download": "downloading",
    "verify": "checking",
    "prepare": "preparing",
    "map": "loading",
    "compile": "compiling kernels",
    "warmup": "warming up",
    "prompt": "reading the prompt",
    "queue": "waiting for earlier requests",
    "draw": "drawing tokens",
    "texts": "writing texts",
    "bench": "measuring",
    "pace": "measuring a step",
    "train": "training",
    "evaluate": "decoding held-out prompts",
}

_REDRAW_SECONDS = 0.1  # ten redraws a second look continuous and cost nothing
_LOG_SECONDS = 10.0
_TIMED_UNITS = (
    "bytes",
    "texts",
    "steps",
    "questions",
)  # their rate says how much time is left


@dataclass(frozen=True, slots=True)
class _Step:
    """What is shown: a phase and how far it is."""

    phase: str
    done: int
    total: int
    unit: str
    item: str = ""


class ProgressLine:
    """Shows one phase after the other."""

    def __init__(
        self,
        stream: Stream,
        *,
        enabled: bool = True,
        live: bool = False,
        keep: bool = False,
        columns: int = 80,
        clock: Callable[[], float] = time.perf_counter,
    ):
        """Nothing is shown before the first step.

        Args:
            stream: stderr.
            enabled: False shows nothing at all.
            live: redraw one line; needs a terminal.
            keep: leave the last state of each phase on the terminal.
            columns: width of the terminal.
            clock: seconds, for rates and for how often to draw.
        """
        self._stream = stream
        self._enabled = enabled
        self._live = live
        self._keep = keep
        self._columns = columns
        self._clock = clock
        self._phase = ""
        self._started = 0.0
        self._first = 0
        self._drawn = 0.0
        self._last: _Step | None = None

    def update(self, event: LoadProgress) -> None:
        """Show a step of loading, downloading or building."""
        self._show(
            _Step(event.phase, event.done, event.total, event.unit, event.item),
            event.rate,
        )

    def prompt(self, done: int, total: int) -> None:
        """Show how many prompt tokens are read."""
        self._show(_Step("prompt", done, total, "tokens"), 0.0)

    def draws(self, done: int, total: int) -> None:
        """Show how many tokens of a sampling test are drawn."""
        self._show(_Step("draw", done, total, ""), 0.0)

    def texts(self, done: int, total: int) -> None:
        """Show how many conversations are written."""
        self._show(_Step("texts", done, total, "texts"), 0.0)

    def answers(self, done: int, total: int, item: str) -> None:
        """Show how many questions of a measurement are answered.

        Args:
            done: questions, each with every arm.
            total: questions.
            item: the last one.
        """
        self._show(_Step("bench", done, total, "questions", item), 0.0)

    def steps(self, done: int, total: int, rate: float, item: str) -> None:
        """Show how far a training is.

        Args:
            done: steps.
            total: steps.
            rate: steps a second.
            item: how well the drafter does.
        """
        self._show(_Step("train", done, total, "steps", item), rate)

    def stage(self, phase: str) -> None:
        """Show a phase that does not count what it does."""
        self._show(_Step(phase, 0, 0, ""), 0.0)

    def waiting(self, position: int) -> None:
        """Show how many requests come first."""
        self._show(_Step("queue", 0, 0, "", f"{position} before this one"), 0.0)

    def close(self) -> None:
        """Finish the line; a terminal is left as if nothing had been shown."""
        if self._live and self._last is not None:
            self._stream.write("\n" if self._keep else "\r\x1b[K")
        self._phase, self._last = "", None

    def _show(self, step: _Step, rate: float) -> None:
        if not self._enabled:
            return
        now = self._clock()
        fresh = step.phase != self._phase
        if fresh:
            if self._keep:
                self.close()
            self._phase, self._started, self._first = step.phase, now, step.done
        pause = _REDRAW_SECONDS if self._live else _LOG_SECONDS
        complete = step.done == step.total and self._live
        if not fresh and not complete and now - self._drawn < pause:
            return
        self._drawn, self._last = now, step
        text = describe(step, rate or self._rate(step.done, now - self._started))
        text = self._stream.safe(text)
        if self._live:
            self._stream.write(f"\r{cut(text, self._columns - 1)}\x1b[K")
        else:
            self._stream.write(f"{text}\n")

    def _rate(self, done: int, seconds: float) -> float:
        return (done - self._first) / seconds if seconds > 1 else 0.0


def describe(step: _Step, rate: float) -> str:
    """``downloading 41.2 MB of 98.4 MB · 12.3 MB/s · 4.65 s left``."""
    parts = [PHASES[step.phase]]
    if step.total:
        parts[0] += (
            f" {_amount(step.done, step.unit)} of {_amount(step.total, step.unit)}"
        )
    if step.unit == "bytes" and rate > 0:
        parts.append(f"{format_bytes(round(rate))}/s")
    if step.unit in _TIMED_UNITS and rate > 0 and step.done < step.total:
        parts.append(f"{format_seconds((step.total - step.done) / rate)} left")
    if step.item:
        parts.append(step.item)
    return " · ".join(parts)


def _amount(count: int, unit: str) -> str:
    return format_bytes(count) if unit == "bytes" else f"{count:,}"
