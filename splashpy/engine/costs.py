# SPDX-License-Identifier: Apache-2.0
"""What cycles cost on this machine, timed after loading until it is known.

A plain step is timed as plain decoding runs it, each launched before the one before it
is read; a verify pass and the drafter's own pass as they run between two readings. The
kinds take turns, and the fastest of each counts: other work on the machine only ever
adds time. What it leaves of nonsense is straightened: more rows cost no less.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import accumulate, islice
from time import perf_counter

import mlx.core as mx

from splashpy.drafting.drafter import Drafter, DraftSampling
from splashpy.drafting.pace import Costs
from splashpy.kernels import metal
from splashpy.models.target import Target

_SECONDS = 1.0  # for all kinds together, unless that leaves too few runs
_FEWEST_RUNS, _MOST_RUNS = 2, 5
_PLAIN_STEPS = 3
_LESS = 0.75
_CONTEXT_ROWS = 2  # what a usual cycle commits

Kind = int | str
"""What is timed: a verify pass by its rows, ``plain``, ``draft``."""


def measure_costs(
    target: Target, rows: Sequence[int], drafter: Drafter | None = None
) -> Costs:
    """Time verify passes and a drafter.

    Args:
        target: with the taps the drafter needs.
        rows: widths of the verify passes to time, each above 1.
        drafter: whose pass over a whole block is timed; None for lookup alone.
    """
    kinds: dict[Kind, Callable[[], float]] = {"plain": lambda: _plain_seconds(target)}
    for width in sorted(set(rows)):
        kinds[width] = lambda width=width: pass_seconds(target, width)
    if drafter is not None:
        features, most = _trace(target, drafter), drafter.block_size - 1
        kinds["draft"] = lambda: _draft_seconds(drafter, features, most)
    best = _fastest(kinds)
    plain = best["plain"]
    widths = sorted(set(rows))
    costs = accumulate((best[width] / plain for width in widths), max, initial=1.0)
    passes = zip(widths, islice(costs, 1, None), strict=True)
    return Costs(tuple(passes), best.get("draft", 0.0) / plain, plain)


def renew_costs(costs: Costs, target: Target, drafter: Drafter | None = None) -> Costs:
    """Costs that were measured before, with the plain step as it is now.

    Whatever the first request would have to wait for is compiled on the way.

    Args:
        costs: of this target and drafter on this machine.
        target: as for :func:`measure_costs`.
        drafter: likewise.
    """
    if drafter is not None:
        _draft_seconds(drafter, _trace(target, drafter), drafter.block_size - 1)
    if metal.use_metal():
        for rows, _ in costs.passes:
            pass_seconds(target, rows)
    seconds = [_plain_seconds(target) for _ in range(_FEWEST_RUNS)]
    return replace(costs, plain_seconds=min(seconds))


def overrated(costs: Costs, target: Target, rows: int) -> bool:
    """Whether a pass takes clearly less than was measured before.

    Other work only ever adds time, so that was measured while there was some.

    Args:
        costs: of :func:`renew_costs`.
        target: of them.
        rows: of the pass.
    """
    found = pass_seconds(target, rows) / costs.plain_seconds
    return found < _LESS * costs.verify(rows)


def _trace(target: Target, drafter: Drafter) -> mx.array | None:
    """Features to draft from; a drafter's graph is traced once for every length."""
    features = _features(target)
    for count in range(1, drafter.block_size - 1):
        _draft_seconds(drafter, features, count)
    return features


def _fastest(kinds: dict[Kind, Callable[[], float]]) -> dict[Kind, float]:
    best = dict.fromkeys(kinds, float("inf"))
    began = perf_counter()
    for index in range(_MOST_RUNS + 1):
        for kind, run in kinds.items():
            seconds = run()
            if index:  # the first run also compiles
                best[kind] = min(best[kind], seconds)
        if index >= _FEWEST_RUNS and perf_counter() - began > _SECONDS:
            break
    return best


def _plain_seconds(target: Target) -> float:
    state = target.new_state(_PLAIN_STEPS)
    token = mx.zeros(1, dtype=mx.int32)
    started = perf_counter()
    for _ in range(_PLAIN_STEPS):
        logits = target.forward(state, token, rows=1).logits
        token = mx.argmax(logits, axis=-1)
        mx.async_eval(token)
    mx.eval(token)
    return (perf_counter() - started) / _PLAIN_STEPS


def pass_seconds(target: Target, rows: int) -> float:
    """What a verify pass of so many rows takes at the beginning of a text."""
    ids = mx.arange(rows) % target.facts.vocab_size
    state = target.new_state(rows)
    started = perf_counter()
    mx.eval(target.forward(state, ids, rows=rows).logits)
    return perf_counter() - started


def _features(target: Target) -> mx.array | None:
    ids = mx.arange(_CONTEXT_ROWS) % target.facts.vocab_size
    features = target.forward(target.new_state(_CONTEXT_ROWS), ids, rows=0).features
    if features is not None:
        mx.eval(features)
    return features


def _draft_seconds(drafter: Drafter, features: mx.array | None, count: int) -> float:
    state = drafter.new_state()
    drafter.observe(state, [0] * _CONTEXT_ROWS, features, 0)
    anchor = mx.array(0, dtype=mx.int32)
    started = perf_counter()
    mx.eval(drafter.propose(state, anchor, count, DraftSampling()).token_ids)
    return perf_counter() - started
