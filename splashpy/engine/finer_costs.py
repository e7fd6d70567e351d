# SPDX-License-Identifier: Apache-2.0
"""What cycles cost beyond the few kinds timed at first: a little more at every start.

Three things are only guessed from those: the widths between them and beyond, what
passes cost more in a long context, and what passes cost that several texts share. Each
is a *point* here, timed for part of a second at some later start and then kept, so that
no start takes long. Until a point is known, the lines between the others serve.

The long context is made up: the first row, repeated. Passes after it take as long as
after a text, which nobody has to read for that.

A machine that is busy meanwhile gives nonsense. So a point counts only if a pass whose
cost is known took about that long right after it, and it is believed within bounds: a
pass costs no less than a narrower one and no more than a wider one or than its rows one
by one; a shared pass costs no more than its texts in turn; 2,048 tokens of context cost
no more than a plain step for each row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from time import perf_counter

import mlx.core as mx

from splashpy.drafting.pace import Costs
from splashpy.engine.costs import pass_seconds
from splashpy.kernels import metal
from splashpy.models.state import TargetState
from splashpy.models.target import Target

WIDE = (12, 16, 24, 32)
"""Rows that only lookup reaches."""

TEXTS = (2, 4)
_MOST_ROWS = 32  # of a shared pass, as in widths.py
_DEPTH = 16_384  # tokens of context at most
_LEAST_DEPTH = 512  # below, a longer context cannot be told from noise
_DEEP_BYTES, _DEEP_BYTES_ON_CPU = 1 << 30, 64 << 20  # of rows made up for that
_RUNS = 3
ODD = 0.25
"""How far a known pass may be off for what was timed beside it to count."""
_STEEPEST = 1 / 2048  # plain steps for a row and a token of context


@dataclass(frozen=True, slots=True)
class Reach:
    """How far cycles of a model may go.

    Attributes:
        block: rows of the drafter's whole block; 0 without a drafter.
        lookup: rows of the widest lookup; 0 without lookup.
        lanes: texts at a time.
        context: tokens of one.
    """

    block: int
    lookup: int
    lanes: int
    context: int


@dataclass(frozen=True, slots=True)
class Point:
    """One thing to time.

    Attributes:
        name: for people, such as "6 rows".
        find: times it; the costs with it.
    """

    name: str
    find: Callable[[Costs], Costs]


def refine(
    costs: Costs, target: Target, reach: Reach, seconds: float
) -> tuple[Costs, tuple[str, ...]]:
    """Time points that are missing, one after the other, while there is time.

    Ends early where the machine turns out to be busy.

    Args:
        costs: known so far, of this target here and now.
        target: of them.
        reach: decides which points there are.
        seconds: after which none is begun.

    Returns:
        The costs with further points, and the names of those.
    """
    found: list[str] = []
    began = perf_counter()
    for point in missing(costs, target, reach):
        if perf_counter() - began >= seconds:
            break
        more = point.find(costs)
        if not _steady(costs, target):
            break
        costs = more
        found.append(point.name)
    return costs, tuple(found)


def _steady(costs: Costs, target: Target) -> bool:
    """Whether the machine is as it was when the first passes were timed."""
    rows, cost = costs.passes[0]
    usual = cost * costs.plain_seconds
    return abs(_fastest(lambda: pass_seconds(target, rows)) - usual) <= ODD * usual


def missing(costs: Costs, target: Target, reach: Reach) -> Iterator[Point]:
    """Points that are not known yet, the most useful first."""
    known = {1, *(rows for rows, _ in costs.passes)}
    widths = [*range(2, reach.block + 1), *(w for w in WIDE if w <= reach.lookup)]
    middle = reach.block // 2 + 1
    deep = {1, middle, reach.block} if reach.block else set()
    if reach.context >= 2 * _LEAST_DEPTH:
        for rows in sorted(deep - {r for r, _ in costs.depths}):
            yield _deep_point(target, rows, reach.context // 2)
    for rows in widths:
        if rows not in known:
            yield _pass_point(target, rows)
    timed = {(texts, rows) for texts, rows, _ in costs.shared}
    for texts in TEXTS:
        for rows in sorted({1, *deep}):
            fits = texts <= reach.lanes and texts * rows <= _MOST_ROWS
            if fits and (texts, rows) not in timed:
                yield _shared_point(target, texts, rows)


def pass_name(rows: int) -> str:
    """What a pass is called."""
    return f"{rows} row{'s' * (rows > 1)}"


def deep_name(rows: int) -> str:
    """What a pass after a long text is called."""
    return f"{pass_name(rows)} in a long context"


def shared_name(texts: int, rows: int) -> str:
    """What a pass of several texts is called."""
    return f"{texts} texts of {pass_name(rows)}"


def _pass_point(target: Target, rows: int) -> Point:
    def find(costs: Costs) -> Costs:
        seconds = _fastest(lambda: pass_seconds(target, rows))
        below = max(cost for width, cost in ((1, 1.0), *costs.passes) if width < rows)
        above = min((c for w, c in costs.passes if w > rows), default=float(rows))
        cost = min(max(seconds / costs.plain_seconds, below), max(above, below))
        return replace(costs, passes=tuple(sorted([*costs.passes, (rows, cost)])))

    return Point(pass_name(rows), find)


def _deep_point(target: Target, rows: int, most: int) -> Point:
    def find(costs: Costs) -> Costs:
        slope = _slope(target, rows, most) / costs.plain_seconds
        below = max((cost for width, cost in costs.depths if width < rows), default=0.0)
        above = min((c for w, c in costs.depths if w > rows), default=rows * _STEEPEST)
        slope = min(max(slope, below), max(above, below))
        return replace(costs, depths=tuple(sorted([*costs.depths, (rows, slope)])))

    return Point(deep_name(rows), find)


def _shared_point(target: Target, texts: int, rows: int) -> Point:
    def find(costs: Costs) -> Costs:
        in_turn = texts * costs.verify(rows)
        cost = in_turn
        if target.shares():
            seconds = _fastest(lambda: _shared_seconds(target, texts, rows))
            cost = min(max(seconds / costs.plain_seconds, 1.0), in_turn)
        point = (texts, rows, cost)
        return replace(costs, shared=tuple(sorted([*costs.shared, point])))

    return Point(shared_name(texts, rows), find)


def _fastest(run: Callable[[], float]) -> float:
    return min(run() for _ in range(_RUNS))


def _slope(target: Target, rows: int, most: int) -> float:
    """Seconds a pass takes longer for a token of context; 0 where nobody can say."""
    size = max(target.facts.kv_bytes_per_token, 1)
    allowed = _DEEP_BYTES if metal.use_metal() else _DEEP_BYTES_ON_CPU
    depth = min(most, _DEPTH, allowed // size)
    if depth < _LEAST_DEPTH:
        return 0.0
    try:
        longer = _longer(target, rows, depth)
    except Exception:  # noqa: BLE001 - a state that cannot be made up; nothing is lost
        return 0.0
    finally:
        mx.clear_cache()
    return max(longer, 0.0) / depth


def _longer(target: Target, rows: int, depth: int) -> float:
    """Seconds a pass takes longer after ``depth`` rows than at the beginning."""
    state = _deep_state(target, depth)
    ids = mx.arange(rows) % target.facts.vocab_size
    near = far = float("inf")
    for _ in range(_RUNS):
        near = min(near, pass_seconds(target, rows))
        started = perf_counter()
        mx.eval(target.forward(state, ids, rows=rows).logits)
        far = min(far, perf_counter() - started)
    return far - near


def _deep_state(target: Target, depth: int) -> TargetState:
    """A state with room for passes after ``depth`` rows, all alike."""
    state = target.new_state(depth + _RUNS * _MOST_ROWS)
    mx.eval(target.forward(state, mx.zeros(1, dtype=mx.int32), rows=1).logits)
    for lane in state.lanes:
        lane.append([mx.repeat(row, depth - 1, axis=2) for row in lane.rows(0, 1)])
    mx.eval(state.arrays)
    return state


def _shared_seconds(target: Target, texts: int, rows: int) -> float:
    states = [target.new_state(rows) for _ in range(texts)]
    ids = mx.arange(texts * rows).reshape(texts, rows) % target.facts.vocab_size
    started = perf_counter()
    mx.eval([each.logits for each in target.forward_together(states, ids)])
    return perf_counter() - started
