# SPDX-License-Identifier: Apache-2.0
"""Does a kernel give the right numbers here, and is it faster than MLX?

A contest is one operation at one shape. First the kernel's results on random inputs are
compared with those of plain MLX; then both run the same chain, where each call needs
the result of the one before and the weights change from call to call, as in a model.
Independent calls on one matrix would overlap and stay in the cache, and a kernel that
wins that way can lose in a model.

Whatever goes wrong is a verdict, never an error: the operation then runs as plain MLX.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from statistics import median
from typing import Any, Literal

import mlx.core as mx

from splashpy.kernels import gate, metal
from splashpy.kernels.roofline import Work

State = Literal["on", "slower", "differs", "failed", "stalls", "off"]

_WIN = 0.98  # of MLX's time: a tie is not worth another rounding
_ROUNDS = 3
_SECONDS = 0.01  # of one measurement
_MOST_STEPS = 64
_STALL = 20  # times the usual time of a piece

Arguments = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Contest:
    """One operation at one shape.

    Attributes:
        operation: its name at the gate.
        shape: what the operation tells the gate.
        call: the operation.
        sets: arguments to run it on by turns; the first of each is an array that may
            hang on an earlier result.
        work: the least it must move and compute.
        tolerance: largest error relative to the largest number; 0 for integers.
        kernels: names of its Metal kernels.
        also: other calls the verdict holds for, on the same arguments; they are
            compared and not raced.
        matrix_units: whether it multiplies matrices of a simdgroup.
    """

    operation: str
    shape: gate.Shape
    call: Callable[..., list[mx.array]]
    sets: Callable[[], Sequence[Arguments]]
    work: Work
    tolerance: float = 0.02
    kernels: tuple[str, ...] = ()
    also: Callable[..., list[mx.array]] = lambda *_: []
    matrix_units: bool = False

    @property
    def key(self) -> gate.Shape:
        """What the verdict is filed under."""
        return filed(self.shape)


@dataclass(frozen=True, slots=True)
class Verdict:
    """What came of a contest.

    Attributes:
        operation: its name.
        key: filed shape.
        state: ``on`` where the kernel runs.
        reason: why it does not; empty where it does.
        kernel_seconds: of one call; 0 where it was not measured.
        stock_seconds: likewise, of plain MLX.
        error: largest relative error.
        bytes: the least one call must move.
        flops: the least it must compute.
        threads: most of a threadgroup that its pipelines take; 0 where nothing was
            refused.
    """

    operation: str
    key: gate.Shape
    state: State
    reason: str = ""
    kernel_seconds: float = 0.0
    stock_seconds: float = 0.0
    error: float = 0.0
    bytes: int = 0
    flops: int = 0
    threads: int = 0


@dataclass(frozen=True, slots=True)
class Switch:
    """Which operations a person allows.

    Attributes:
        only: these, where not empty.
        without: never these.
        off: none at all.
    """

    only: frozenset[str] = frozenset()
    without: frozenset[str] = field(default_factory=frozenset)
    off: bool = False

    @classmethod
    def parse(cls, text: str) -> Switch:
        """Read ``off``, ``name,name`` or ``-name,-name``; empty allows all."""
        words = [word.strip() for word in text.split(",") if word.strip()]
        return cls(
            only=frozenset(w for w in words if w[0] != "-" and w not in _WORDS),
            without=frozenset(w[1:] for w in words if w[0] == "-"),
            off="off" in words,
        )

    def allows(self, operation: str) -> bool:
        """Whether an operation may run its kernel."""
        wanted = not self.only or operation in self.only
        return wanted and operation not in self.without and not self.off


_WORDS = ("on", "off", "auto")


def filed(shape: gate.Shape) -> gate.Shape:
    """A shape with its rows, which come first, as the next power of two."""
    rows, *rest = shape
    assert isinstance(rows, int)
    return 1 << max(rows - 1, 0).bit_length(), *rest


def rule(verdicts: Sequence[Verdict], switch: Switch) -> gate.Rule:
    """Allow what won and is not switched off."""
    won = {(v.operation, v.key) for v in verdicts if v.state == "on"}

    def allows(operation: str, shape: gate.Shape) -> bool:
        return switch.allows(operation) and (operation, filed(shape)) in won

    return allows


def judge(contest: Contest, clock: Callable[[], float]) -> Verdict:
    """Compare and race one kernel.

    Args:
        contest: what to try.
        clock: seconds, for durations.
    """
    threads = 0
    while True:
        try:
            return replace(_judge(contest, clock), threads=threads)
        except (RuntimeError, ValueError) as error:
            limit = metal.refused_threads(error)
            if not limit or 0 < threads <= limit:
                return _verdict(contest, "failed", str(error).splitlines()[0])
        threads = limit
        limit_threads(contest, threads)


def limit_threads(contest: Contest, threads: int) -> None:
    """Let the kernels of a contest have no more threads than their pipelines take."""
    for kernel in contest.kernels:
        metal.limit_threads(kernel, threads)


def sustain(contest: Contest, seconds: float, clock: Callable[[], float]) -> str:
    """Run a kernel for a while; an empty string, or how it stalled."""
    sets = contest.sets()
    pieces: list[float] = []
    started = clock()
    with gate.ruled(_always):
        while clock() - started < seconds:
            before = clock()
            mx.eval(_chain(contest, sets, _MOST_STEPS))
            pieces.append(clock() - before)
    usual, worst = median(pieces), max(pieces[1:], default=0.0)
    if worst > _STALL * usual:
        return f"a piece of {usual * 1e3:.1f} ms once took {worst:.1f} s"
    return ""


def _always(operation: str, shape: gate.Shape) -> bool:
    return True


def _judge(contest: Contest, clock: Callable[[], float]) -> Verdict:
    sets = contest.sets()
    with gate.ruled(_always):
        ours = _results(contest, sets[0])
        mx.eval(ours)
    with gate.ruled(None):
        theirs = _results(contest, sets[0])
    error = max(_error(a, b) for a, b in zip(ours, theirs, strict=True))
    if not error <= contest.tolerance:
        return _verdict(contest, "differs", f"by {error:.2g}", error)
    kernel, stock = _race(contest, sets, clock)
    won = kernel <= _WIN * stock
    return Verdict(
        contest.operation,
        contest.key,
        "on" if won else "slower",
        "" if won else f"{kernel / stock:.2f} x MLX's time",
        kernel,
        stock,
        error,
        contest.work.bytes,
        contest.work.flops,
    )


def _results(contest: Contest, arguments: Arguments) -> list[mx.array]:
    return [*contest.call(*arguments), *contest.also(*arguments)]


def _error(ours: mx.array, theirs: mx.array) -> float:
    """Largest difference relative to the largest number; 1 for unequal integers."""
    if ours.shape != theirs.shape:
        return 1.0
    if not mx.issubdtype(ours.dtype, mx.floating):
        return 0.0 if mx.array_equal(ours, theirs).item() else 1.0
    ours, theirs = ours.astype(mx.float32), theirs.astype(mx.float32)
    largest = mx.maximum(mx.abs(theirs).max(), 1e-30)
    error: Any = (mx.abs(ours - theirs).max() / largest).item()
    return float(error)


def _race(
    contest: Contest, sets: Sequence[Arguments], clock: Callable[[], float]
) -> tuple[float, float]:
    """Seconds per call of the kernel and of MLX, measured by turns."""

    def seconds(allowed: gate.Rule | None, steps: int) -> float:
        with gate.ruled(allowed):
            end = _chain(contest, sets, steps)
            started = clock()
            mx.eval(end)
            return (clock() - started) / steps

    first = max(seconds(_always, 2), seconds(None, 2), 1e-7)
    steps = max(4, min(_MOST_STEPS, int(_SECONDS / first)))
    pairs = [(seconds(_always, steps), seconds(None, steps)) for _ in range(_ROUNDS)]
    return median(k for k, _ in pairs), median(s for _, s in pairs)


def _chain(contest: Contest, sets: Sequence[Arguments], steps: int) -> list[mx.array]:
    """The result of the last of ``steps`` calls, each hanging on the one before."""
    results: list[mx.array] = []
    for step in range(steps):
        first, *rest = sets[step % len(sets)]
        if results:
            link = results[0].reshape(-1)[:1] * 0
            first = first + link.astype(first.dtype)
        results = contest.call(first, *rest)
    return results


def _verdict(
    contest: Contest, state: State, reason: str, error: float = 0.0
) -> Verdict:
    return Verdict(
        contest.operation,
        contest.key,
        state,
        reason,
        error=error,
        bytes=contest.work.bytes,
        flops=contest.work.flops,
    )
