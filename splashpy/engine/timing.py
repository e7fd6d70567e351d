# SPDX-License-Identifier: Apache-2.0
"""What cycles cost here: taken from earlier starts, or timed now, within limits.

The first two starts of a pair time the few kinds everything else is guessed from
(``costs.py``); later ones time the plain step, and for part of a second what nobody
knows yet (``finer_costs.py``). Where a pass turns out to take clearly less than it did,
the machine was busy then, and they are timed again. When it is asked to be timed again,
all of it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from time import perf_counter

from splashpy.drafting.drafter import Drafter
from splashpy.drafting.pace import FREE, Costs
from splashpy.engine.calibration import Calibration
from splashpy.engine.costs import measure_costs, overrated, renew_costs
from splashpy.engine.finer_costs import (
    Reach,
    deep_name,
    pass_name,
    refine,
    shared_name,
)
from splashpy.models.target import Target

MORE_SECONDS = 0.4
"""Of a start, for what is not known yet; what is begun by then is finished."""

ALL_SECONDS = 8.0
"""Where everything is timed again."""


@dataclass(frozen=True, slots=True)
class Timed:
    """Costs, and where they are from.

    Attributes:
        costs: of cycles.
        measured: what was timed now.
        kept: what was timed at earlier starts.
        seconds: all of it took.
        trouble: why something that was kept could not be used; empty where it could.
    """

    costs: Costs = FREE
    measured: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()
    seconds: float = 0.0
    trouble: str = ""


def time_cycles(
    target: Target,
    drafter: Drafter | None,
    kept: Calibration,
    rows: Sequence[int],
    reach: Reach,
) -> Timed:
    """Find out what cycles cost.

    Args:
        target: with the taps the drafter needs.
        drafter: None for lookup alone.
        kept: from earlier starts, and for later ones.
        rows: of the passes everything else is guessed from.
        reach: how far cycles may go.
    """
    began = perf_counter()
    trouble, known = kept.trouble, _known(target, drafter, kept, rows)
    more: tuple[str, ...] = ()
    if known is None:
        costs = measure_costs(target, rows, drafter)
        if kept.again:
            costs, more = refine(costs, target, reach, ALL_SECONDS)
        kept.write(costs)
        measured = ("a plain step", *_names(costs, drafted=drafter is not None), *more)
        measured = tuple(dict.fromkeys(measured))
    else:
        costs, more = refine(known, target, reach, MORE_SECONDS)
        if more:
            kept.extend(costs)
        measured = ("a plain step", *more)
    return Timed(
        costs,
        measured,
        _names(known, drafted=drafter is not None) if known else (),
        perf_counter() - began,
        trouble,
    )


def _known(
    target: Target, drafter: Drafter | None, kept: Calibration, rows: Sequence[int]
) -> Costs | None:
    """What is kept, with the plain step of now; None where it is not to be believed."""
    found = kept.read(rows)
    if found is None:
        return None
    costs = renew_costs(found, target, drafter)
    return None if overrated(costs, target, max(rows)) else costs


def _names(costs: Costs, *, drafted: bool) -> tuple[str, ...]:
    """What is known, for people."""
    return (
        *(pass_name(rows) for rows, _ in costs.passes),
        *(("a draft",) if drafted else ()),
        *(deep_name(rows) for rows, _ in costs.depths),
        *(shared_name(texts, rows) for texts, rows, _ in costs.shared),
    )
