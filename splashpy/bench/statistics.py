# SPDX-License-Identifier: Apache-2.0
"""How sure a speed-up is.

Each repeat of a prompt gives one ratio of two neighbouring answers. A prompt stands for
the median of its ratios, a set of prompts for their geometric mean. Intervals are those
of a bootstrap: prompts are drawn again with replacement, and the repeats of each. The
interval of the worst prompt draws its repeats only, since drawing prompts would ask
another question.

Source: B. Efron, "Bootstrap methods: another look at the jackknife", 1979; the
percentile interval.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

RESAMPLES = 1000
INCONCLUSIVE = 0.05
"""Repeats that differ by more than this say little about smaller differences."""

_LEVEL = 95.0  # percent
_SEED = 42


@dataclass(frozen=True, slots=True)
class Estimate:
    """A value and its 95 % interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Speedup:
    """How much faster one arm is than another.

    Attributes:
        geomean: over the prompts, with its interval.
        worst: of the slowest prompt, with its interval.
        worst_prompt: its key.
        spread: (highest - lowest) / median of what the repeats give, each over all
            prompts; None with fewer than two repeats.
        prompts: how many.
        pairs: ratios they rest on.
        by_prompt: of every prompt, with its interval.
    """

    geomean: Estimate
    worst: Estimate
    worst_prompt: str
    spread: float | None
    prompts: int
    pairs: int
    by_prompt: Mapping[str, Estimate]

    @property
    def inconclusive(self) -> bool:
        """Whether the repeats differ too much, or nobody knows."""
        return self.spread is None or self.spread > INCONCLUSIVE

    def fields(self) -> dict[str, Any]:
        """As a JSON document holds it, without the single prompts."""
        geomean, worst = asdict(self.geomean), asdict(self.worst)
        return {
            "geomean": geomean["value"],
            "low": geomean["low"],
            "high": geomean["high"],
            "worst": worst["value"],
            "worst_low": worst["low"],
            "worst_high": worst["high"],
            "worst_prompt": self.worst_prompt,
            "spread": self.spread,
            "inconclusive": self.inconclusive,
            "prompts": self.prompts,
            "pairs": self.pairs,
        }


def speedup(ratios: Mapping[str, Sequence[float]]) -> Speedup | None:
    """What repeated ratios of prompts say; None without any.

    Args:
        ratios: by prompt, one for each repeat, all above 0.
    """
    logs = {key: np.log(each) for key, each in ratios.items() if len(each)}
    if not logs:
        return None
    generator = np.random.default_rng(_SEED)
    middles = np.array([np.median(each) for each in logs.values()])
    drawn = np.stack([_medians(each, generator) for each in logs.values()])
    picked = generator.integers(len(logs), size=(len(logs), RESAMPLES))
    means = np.take_along_axis(drawn, picked, axis=0).mean(axis=0)
    by_prompt = {
        key: _estimate(middle, row)
        for key, middle, row in zip(logs, middles, drawn, strict=True)
    }
    worst = min(by_prompt, key=lambda key: by_prompt[key].value)
    return Speedup(
        geomean=_estimate(middles.mean(), means),
        worst=by_prompt[worst],
        worst_prompt=worst,
        spread=_spread(list(logs.values())),
        prompts=len(logs),
        pairs=sum(map(len, logs.values())),
        by_prompt=by_prompt,
    )


def percentile(values: Sequence[float], percent: float) -> float | None:
    """A percentile between the sorted values; None without values."""
    return float(np.percentile(values, percent)) if len(values) else None


def _medians(values: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    """[R] medians of repeats drawn again."""
    picked = generator.integers(len(values), size=(RESAMPLES, len(values)))
    return np.median(values[picked], axis=1)


def _estimate(middle: float, drawn: np.ndarray) -> Estimate:
    edge = (100.0 - _LEVEL) / 2
    low, high = np.percentile(drawn, [edge, 100.0 - edge])
    return Estimate(*(float(np.exp(each)) for each in (middle, low, high)))


def _spread(logs: list[np.ndarray]) -> float | None:
    repeats = min(map(len, logs))
    if repeats < 2:
        return None
    whole = np.exp(np.stack([each[:repeats] for each in logs]).mean(axis=0))
    return float((whole.max() - whole.min()) / np.median(whole))
