# SPDX-License-Identifier: Apache-2.0
"""Parameters of an answer by name: read from text, shown with the package's default.

Pure: settings in, settings out. Used by ``/set`` and by the page of parameters alike.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

from splashpy.chat.settings import ChatSettings
from splashpy.errors import UsageError
from splashpy.protocol import Ready
from splashpy.units import parse_tokens

DEFAULT = "default"
"""What is written to take a value back."""


class Parameter(NamedTuple):
    """One row of the table.

    Attributes:
        name: as people write it.
        field: of ``Sampling``, or of ``ChatSettings`` where ``own``.
        read: the value of a text; raises ValueError with what is allowed.
        help: one line.
        own: it is no part of ``Sampling``.
    """

    name: str
    field: str
    read: Callable[[str], Any]
    help: str
    own: bool = False


def _number(low: float, high: float, *, above: bool = False) -> Callable[[str], float]:
    def read(text: str) -> float:
        value = float(text)
        if not math.isfinite(value) or not low <= value <= high:
            raise ValueError
        if above and value == low:
            raise ValueError
        return value

    return _explained(read, f"a number from {low:g} to {high:g}")


def _whole(low: int, high: int = 2**63) -> Callable[[str], int]:
    def read(text: str) -> int:
        value = int(text)
        if not low <= value <= high:
            raise ValueError
        return value

    return _explained(read, f"a whole number, at least {low}")


def _explained(read: Callable[[str], Any], allowed: str) -> Callable[[str], Any]:
    def explain(text: str) -> Any:
        try:
            return read(text)
        except ValueError:
            raise ValueError(f"it must be {allowed}") from None

    return explain


def _count(text: str) -> int:
    value = parse_tokens(text)
    if value < 1:
        raise ValueError
    return value


def _switch(text: str) -> bool:
    if text not in ("on", "off"):
        raise ValueError("it must be on or off")
    return text == "on"


def _stops(text: str) -> tuple[str, ...]:
    return tuple(part.replace("\\n", "\n") for part in text.split(",") if part)


TABLE = {
    row.name: row
    for row in (
        Parameter("temperature", "temperature", _number(0, 2), "0 is greedy"),
        Parameter(
            "top-p", "top_p", _number(0, 1, above=True), "smallest set with this mass"
        ),
        Parameter("top-k", "top_k", _whole(0), "most likely tokens; 0 keeps all"),
        Parameter("min-p", "min_p", _number(0, 1), "share of the most likely token"),
        Parameter(
            "repetition-penalty",
            "repetition_penalty",
            _number(0, 10, above=True),
            "1 is off",
        ),
        Parameter(
            "presence-penalty", "presence_penalty", _number(-2, 2), "once a token"
        ),
        Parameter(
            "frequency-penalty", "frequency_penalty", _number(-2, 2), "each time"
        ),
        Parameter("seed", "seed", _whole(0, 2**64 - 1), "same seed, same text"),
        Parameter("stop", "stop", _stops, "texts that end it: a,b"),
        Parameter(
            "max-tokens",
            "max_tokens",
            _explained(_count, "a count of tokens such as 512 or 2K"),
            "length of the answer",
            own=True,
        ),
        Parameter("effort", "effort", str, "how long the model thinks", own=True),
        Parameter("draft", "draft", _switch, "off: one token at a time", own=True),
    )
}


_SHORT = {"temp": "temperature"}


def changed(
    settings: ChatSettings, name: str, text: str, ready: Ready | None
) -> ChatSettings:
    """The settings with one parameter set from text.

    Args:
        settings: present ones.
        name: of the table.
        text: the value; ``default`` or nothing takes it back.
        ready: what the model offers, as far as known.

    Raises:
        UsageError: no such parameter, or a value that is not allowed.
    """
    row = TABLE.get(_SHORT.get(name, name.replace("_", "-")))
    if row is None:
        raise UsageError(
            f"there is no parameter {name!r}", why="parameters: " + ", ".join(TABLE)
        )
    value = _value(row, text.strip(), ready)
    if row.own:
        return replace(settings, **{row.field: value})
    return replace(settings, sampling=replace(settings.sampling, **{row.field: value}))


def _value(row: Parameter, text: str, ready: Ready | None) -> Any:
    if text in ("", DEFAULT):
        return {"stop": (), "draft": True}.get(row.name)
    levels = ready.effort_levels if ready is not None else ()
    if row.name == "effort" and ready is not None and text not in levels:
        raise UsageError(
            f"effort is {text!r}",
            why="levels: " + ", ".join(levels)
            if levels
            else "this model has no levels of effort",
        )
    try:
        return row.read(text)
    except ValueError as error:
        raise UsageError(f"{row.name} is {text!r}", why=str(error)) from None


def shown(settings: ChatSettings, name: str) -> str:
    """The present value of a parameter as it would be written; empty: the default."""
    row = TABLE[name]
    value = getattr(settings if row.own else settings.sampling, row.field)
    if row.name == "draft":
        return "" if value else "off"
    if row.name == "stop":
        return ",".join(part.replace("\n", "\\n") for part in value)
    if value is None:
        return ""
    return f"{value:g}" if isinstance(value, float) else str(value)


def default(name: str, ready: Ready | None) -> str:
    """What happens without a value, as far as the model said."""
    row = TABLE[name]
    if row.name == "effort":
        return (ready.effort_default if ready else "") or "the model's"
    if row.name == "draft":
        return "on"
    if row.name == "max-tokens":
        return "what the context leaves"
    if row.name == "seed":
        return "random"
    value = getattr(ready.sampling_defaults, row.field) if ready else None
    return "off" if value in (None, ()) else f"{value:g}"


def next_effort(settings: ChatSettings, ready: Ready | None) -> str:
    """The level of effort after the present one, from the last to the first.

    Raises:
        UsageError: the model has no levels.
    """
    levels = ready.effort_levels if ready is not None else ()
    if not levels or ready is None:
        raise UsageError("this model has no levels of effort")
    present = settings.effort or ready.effort_default
    at = levels.index(present) if present in levels else -1
    return levels[(at + 1) % len(levels)]
