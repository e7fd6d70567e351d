# SPDX-License-Identifier: Apache-2.0
"""Whether an operation runs as its Metal kernel or as plain MLX.

Every operation with a kernel asks :func:`allows` with its name and the numbers that
decide its speed. Nothing is allowed until a rule is set: on a machine without Metal
that never happens. On one with it, the rule is made from measured verdicts
(``contest.py``).

The rule is asked while a graph is built. A traced function keeps the answer it got.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

Shape = tuple[object, ...]
"""What an operation's speed and rounding depend on: extents and element types."""

Rule = Callable[[str, Shape], bool]
"""Of an operation's name and shape, whether its kernel runs."""


def _never(operation: str, shape: Shape) -> bool:
    return False


_rule: Rule = _never


def allows(operation: str, *shape: object) -> bool:
    """Whether the kernel of an operation runs at this shape."""
    return _rule(operation, shape)


def set_rule(rule: Rule | None) -> None:
    """Decide from now on by ``rule``; None allows nothing."""
    global _rule
    _rule = rule or _never


@contextmanager
def ruled(rule: Rule | None) -> Iterator[None]:
    """Decide by ``rule`` inside a ``with`` block."""
    before = _rule
    set_rule(rule)
    try:
        yield
    finally:
        set_rule(before)
