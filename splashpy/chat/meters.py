# SPDX-License-Identifier: Apache-2.0
"""What the numbers under an answer mean, as pure functions.

- tok/s while writing: tokens committed in the last 3 seconds by that span;
- tok/s of a finished answer: tokens after the first emission by the time from the
  first to the last emission;
- τ, the acceptance length: tokens produced after the prefill token by verify passes.
  The target's own token counts, so 1 is plain decoding and the block size the most;
- cached: prompt tokens that were restored instead of computed.

A number that is not known is None here and a dash on screen, never a guess.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from dataclasses import dataclass, field

from splashpy.protocol import Cycle, Done, Prefill
from splashpy.units import format_seconds, format_tokens

UNKNOWN = "\u2013"
SPARK_CELLS = 32
_WINDOW_SECONDS = 3.0
_SHORTEST_SPAN_SECONDS = 0.05  # below this a rate says more about timers than tokens
_BARS = "▁▂▃▄▅▆▇█"


@dataclass(slots=True)
class LiveMeter:
    """Speed and acceptance of the answer being written.

    Attributes:
        committed: tokens so far.
        spark: tokens committed by each of the latest verify passes.
        passes: verify passes.
        drafted: tokens proposed.
        accepted: proposed tokens that were kept.
        hist: passes by the tokens they committed.
        kept: passes that kept at least so many proposed tokens, from 1 on.
        proposed: passes that proposed at least so many, from 1 on.
        draft_ms: all of drafting.
        verify_ms: all of verifying.
        late: seconds between the end of a cycle and its arrival here, at most.
    """

    committed: int = 0
    passes: int = 0
    drafted: int = 0
    accepted: int = 0
    hist: Counter[int] = field(default_factory=Counter)
    kept: Counter[int] = field(default_factory=Counter)
    proposed: Counter[int] = field(default_factory=Counter)
    draft_ms: float = 0.0
    verify_ms: float = 0.0
    late: float = 0.0
    spark: deque[int] = field(default_factory=lambda: deque(maxlen=SPARK_CELLS))
    _first_at: float | None = None
    _after_prefill: int = 0
    _recent: deque[tuple[float, int]] = field(default_factory=deque)

    def add(self, cycle: Cycle, now: float) -> None:
        """Count a cycle that ended at ``now``, in seconds of any steady clock."""
        self.committed += cycle.committed
        if cycle.i > 0:
            self._add_pass(cycle)
        if self._first_at is None:
            # Tokens of the first emission took the time before it, not after.
            self._first_at = now
        else:
            self._recent.append((now, cycle.committed))
        while self._recent and self._recent[0][0] <= now - _WINDOW_SECONDS:
            self._recent.popleft()

    def _add_pass(self, cycle: Cycle) -> None:
        self.passes += 1
        self._after_prefill += cycle.committed
        self.spark.append(cycle.committed)
        self.drafted += cycle.drafted
        self.accepted += cycle.accepted
        self.hist[cycle.committed] += 1
        self.kept.update(range(1, cycle.accepted + 1))
        self.proposed.update(range(1, cycle.drafted + 1))
        self.draft_ms += cycle.draft_ms
        self.verify_ms += cycle.verify_ms

    @property
    def first_at(self) -> float | None:
        """When the first token came."""
        return self._first_at

    @property
    def acceptance_length(self) -> float | None:
        """τ of the answer so far."""
        return self._after_prefill / self.passes if self.passes else None

    def rate(self, now: float) -> float | None:
        """Tokens per second over the last three seconds, or since the first token.

        What ended since it was told last may still be on its way. Over three seconds
        the same is so at both ends; since the first token, that time does not count
        until it is longer than a cycle may be late.
        """
        if self._first_at is None:
            return None
        start, end = now - _WINDOW_SECONDS, now
        if start < self._first_at:
            start = told_at = self._first_at
            if self._recent:
                told_at = self._recent[-1][0]
            end = min(max(told_at, now - self.late), now)
        if end - start < _SHORTEST_SPAN_SECONDS or not self.passes:
            return None
        return sum(count for at, count in self._recent if at > start) / (end - start)


def final_rate(done: Done) -> float | None:
    """Tokens per second of a finished answer, without its first emission."""
    seconds = done.timing.decode_ms / 1000
    if seconds < _SHORTEST_SPAN_SECONDS:
        return None
    return (done.usage.completion - done.timing.first_emission_tokens) / seconds


def final_acceptance_length(done: Done) -> float | None:
    """τ of a finished answer; None when there was no verify pass."""
    return done.spec.tau if done.spec.cycles else None


def prefill_rate(prefill: Prefill) -> float | None:
    """Prompt tokens computed per second; restored ones do not count."""
    seconds = prefill.elapsed_ms / 1000
    computed = prefill.processed - prefill.cached
    if seconds < _SHORTEST_SPAN_SECONDS or computed <= 0:
        return None
    return computed / seconds


def spark_bar(committed: int, block_size: int) -> str:
    """One cell of the sparkline, on the fixed scale 0 … ``block_size``."""
    level = math.ceil(len(_BARS) * committed / max(block_size, 1))
    return _BARS[min(max(level, 1), len(_BARS)) - 1]


def format_rate(rate: float | None) -> str:
    """``72.4 tok/s``."""
    return f"{UNKNOWN if rate is None else f'{rate:.1f}'} tok/s"


def format_acceptance(tau: float | None, block_size: int | None = None) -> str:
    """``τ 4.81/8``; without the scale when it is None, or too small by lookup."""
    scale = "" if block_size is None or (tau or 0) > block_size else f"/{block_size}"
    return f"τ {UNKNOWN if tau is None else f'{tau:.2f}'}{scale}"


LOAD_PHASES = {
    "resolve": "finding the model",
    "download": "downloading",
    "verify": "checking files",
    "prepare": "preparing weights",
    "map": "loading weights",
    "compile": "building kernels",
    "warmup": "warming up",
}
"""What happens in each phase of loading."""

_ENDINGS = {
    "stop": "",
    "length": "length limit",
    "cancelled": "stopped",
    "tool_calls": "tool call",
    "context_full": "context full",
}


def summary(done: Done) -> str:
    """The line under a finished answer."""
    usage = done.usage
    parts = [count_noun(usage.completion, "token")]
    if usage.completion:
        parts.append(format_rate(final_rate(done)))
        parts.append(format_acceptance(final_acceptance_length(done)))
        parts.append(f"first token {format_seconds(done.timing.ttft_ms / 1000)}")
    parts.append(cached_share(usage.cached, usage.prompt))
    parts.append(_ENDINGS[done.reason])
    return " · ".join(part for part in parts if part)


def cached_share(cached: int, prompt: int) -> str:
    """``31.9K of 32.0K prompt cached``."""
    return f"{format_tokens(cached)} of {format_tokens(prompt)} prompt cached"


def count_noun(count: int, noun: str) -> str:
    """``1 token``, ``2,012 tokens``."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
