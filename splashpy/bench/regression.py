# SPDX-License-Identifier: Apache-2.0
"""A run beside an earlier one: what changed, and whether that is a regression.

A speed-up is a ratio of two arms on one machine, so it may be compared between
machines; rates only where machine, BLAS and versions of the engine are the same. A
figure that fell by more than what was allowed, and by more than twice what the repeats
of either run differ, is a regression.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from splashpy.errors import UsageError

_ASKED = ("model", "suites", "number", "max_tokens", "contexts", "sampling")
"""Settings that decide what is measured."""

_MACHINE = ("machine", "blas")


@dataclass(frozen=True, slots=True, kw_only=True)
class Delta:
    """One figure in both runs.

    Attributes:
        name: of the figure.
        before, now: its values.
        allowed: fraction it may lose.
    """

    name: str
    before: float
    now: float
    allowed: float

    @property
    def change(self) -> float:
        """0.05 is five percent more."""
        return self.now / self.before - 1

    @property
    def regressed(self) -> bool:
        """Whether it lost more than it may."""
        return self.change < -self.allowed


def deltas(
    before: Mapping[str, Any], now: Mapping[str, Any], max_regression: float
) -> list[Delta]:
    """Figures of two documents of ``splashpy.bench/1`` that can be compared.

    Args:
        before: the earlier one.
        now: the new one.
        max_regression: fraction that may be lost, at least.

    Raises:
        UsageError: they measured different things, or share no figure.
    """
    refuse_different(before, now)
    allowed = max(max_regression, 2 * _spread(before), 2 * _spread(now))
    figures = {"speedup.geomean": [_of(d, "speedup", "geomean") for d in (before, now)]}
    if same_machine(before, now):
        for suite, found in now["suites"].items():
            for arm in found["arms"]:
                path = ("suites", suite, "arms", arm, "decode_tok_s")
                figures[f"{suite}.{arm}.decode_tok_s"] = [
                    _of(document, *path) for document in (before, now)
                ]
    compared = [
        Delta(name=name, before=old, now=new, allowed=allowed)
        for name, (old, new) in figures.items()
        if old and new
    ]
    if not compared:
        raise UsageError(
            "the two runs share no figure",
            why="one has no speed-up, and they come from different machines",
        )
    return compared


def same_machine(before: Mapping[str, Any], now: Mapping[str, Any]) -> bool:
    """Whether rates may be compared, not only ratios."""
    return all(
        _of(before, "environment", name) == _of(now, "environment", name)
        for name in _MACHINE
    )


def refuse_different(before: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    """Refuse to compare runs that measured different things.

    Args:
        before: the earlier document; its ``settings`` are looked at.
        now: the new one.

    Raises:
        UsageError: a setting that decides what is measured differs.
    """
    settings = [document.get("settings", {}) for document in (before, now)]
    differing = [
        f"{name} {settings[0].get(name)!r} and {settings[1].get(name)!r}"
        for name in _ASKED
        if settings[0].get(name) != settings[1].get(name)
    ]
    if differing:
        raise UsageError(
            "the two runs measured different things", why="; ".join(differing)
        )


def _spread(document: Mapping[str, Any]) -> float:
    return _of(document, "speedup", "spread") or 0.0


def _of(document: Mapping[str, Any], *path: str) -> Any:
    found: Any = document
    for name in path:
        found = found.get(name) if isinstance(found, Mapping) else None
    return found
