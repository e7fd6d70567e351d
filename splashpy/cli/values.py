# SPDX-License-Identifier: Apache-2.0
"""What the text after an option may say, and the value it becomes.

A parser takes the text and returns the value; a ``ValueError`` it raises says in one
phrase what is allowed. The same parser reads a flag and its environment variable.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

from splashpy.errors import UsageError
from splashpy.units import format_tokens, parse_tokens

Parser = Callable[[str], Any]

_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([KMGT]?)(iB)?B?", re.IGNORECASE)
_SIZE_UNITS = ("", "K", "M", "G", "T")


def text(value: str) -> str:
    """Any text."""
    return value


def integer(low: int, high: int | None = None) -> Parser:
    """A whole number from ``low`` to ``high``; None is unbounded."""

    def parse(value: str) -> int:
        allowed = f"a whole number {_bounds(low, high)}"
        try:
            number = int(value)
        except ValueError:
            raise ValueError(allowed) from None
        if number < low or (high is not None and number > high):
            raise ValueError(allowed)
        return number

    return parse


def decimal(low: float, high: float | None = None, *, above: bool = False) -> Parser:
    """A number from ``low`` to ``high``; with ``above``, ``low`` itself is refused."""

    def parse(value: str) -> float:
        allowed = (
            f"a number above {low:g}" if above else f"a number {_bounds(low, high)}"
        )
        try:
            number = float(value)
        except ValueError:
            raise ValueError(allowed) from None
        too_low = number <= low if above else number < low
        too_high = high is not None and number > high
        if not math.isfinite(number) or too_low or too_high:
            raise ValueError(allowed)
        return number

    return parse


def tokens(low: int) -> Parser:
    """A token count of at least ``low``, such as ``4096`` or ``32K``."""

    def parse(value: str) -> int:
        allowed = f"a token count of at least {format_tokens(low)}, such as 32K"
        try:
            count = parse_tokens(value)
        except ValueError:
            raise ValueError(allowed) from None
        if count < low:
            raise ValueError(allowed)
        return count

    return parse


def size(value: str) -> int:
    """Bytes of a size such as ``28G``, ``28GiB`` or ``28000M``.

    Raises:
        ValueError: the text is not a size.
    """
    match = _SIZE.fullmatch(value.strip())
    if match is None:
        raise ValueError("a size such as 28G, 28GiB or 28000M")
    step = 1024 if match[3] else 1000
    return int(float(match[1]) * step ** _SIZE_UNITS.index(match[2].upper()))


def some_size(value: str) -> int:
    """As :func:`size`, and more than nothing.

    Raises:
        ValueError: the text is not that.
    """
    found = size(value)
    if not found:
        raise ValueError("a size above 0, such as 28G")
    return found


def numbers(value: str) -> tuple[int, ...]:
    """Whole numbers of at least 0 with commas between them.

    Raises:
        ValueError: the text is no such list.
    """
    parts = [part.strip() for part in value.split(",")]
    if not all(part.isdecimal() for part in parts):
        raise ValueError("whole numbers with commas between them, such as 1,8,15")
    return tuple(map(int, parts))


def numbers_or_none(value: str) -> tuple[int, ...]:
    """As :func:`numbers`; the word ``none`` is the empty list.

    Raises:
        ValueError: the text is neither.
    """
    return () if value.strip() == "none" else numbers(value)


def choice(*names: str) -> Parser:
    """One of a few words."""

    def parse(value: str) -> str:
        if value not in names:
            raise ValueError(f"one of {', '.join(names)}")
        return value

    return parse


def number_choice(*numbers: int) -> Parser:
    """One of a few numbers."""

    def parse(value: str) -> int:
        if value not in map(str, numbers):
            raise ValueError(f"one of {', '.join(map(str, numbers))}")
        return int(value)

    return parse


def bias(value: str) -> tuple[int, float]:
    """``ID=VALUE``: a token id and what is added to its logit, -100 to 100."""
    allowed = "TOKEN_ID=VALUE with a value from -100 to 100, such as 1234=-5"
    left, _, right = value.partition("=")
    try:
        token_id, added = int(left), float(right)
    except ValueError:
        raise ValueError(allowed) from None
    if token_id < 0 or not -100 <= added <= 100:
        raise ValueError(allowed)
    return token_id, added


def parse(parser: Parser, value: str, label: str) -> Any:
    """Read a value, or say which option had which value and what is allowed.

    Raises:
        UsageError: the parser refused the text.
    """
    try:
        return parser(value)
    except ValueError as error:
        raise UsageError(f"{label} got {value!r}", why=f"it takes {error}") from None


def _bounds(low: float, high: float | None) -> str:
    return f"of at least {low}" if high is None else f"from {low} to {high}"
