# SPDX-License-Identifier: Apache-2.0
"""What a parser of tool calls says about the text of an answer."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Prose:
    """Text that belongs to no call."""

    text: str


@dataclass(frozen=True, slots=True)
class Markup:
    """Text that was read as part of a call."""

    text: str


@dataclass(frozen=True, slots=True)
class CallStart:
    """A call begins; ``call_id`` is empty unless the model wrote one."""

    index: int
    name: str
    call_id: str = ""


@dataclass(frozen=True, slots=True)
class CallArguments:
    """More of the arguments; all of them, joined, are the text of one JSON object."""

    index: int
    text: str


@dataclass(frozen=True, slots=True)
class CallEnd:
    """A call ends; its arguments are whole only where ``complete``."""

    index: int
    complete: bool


ToolEvent = Prose | Markup | CallStart | CallArguments | CallEnd


def joined(events: list[ToolEvent]) -> list[ToolEvent]:
    """Neighbours of the same kind as one event."""
    merged: list[ToolEvent] = []
    for event in events:
        last = merged[-1] if merged else None
        if isinstance(event, Prose) and isinstance(last, Prose):
            merged[-1] = Prose(last.text + event.text)
        elif isinstance(event, Markup) and isinstance(last, Markup):
            merged[-1] = Markup(last.text + event.text)
        elif (
            isinstance(event, CallArguments)
            and isinstance(last, CallArguments)
            and event.index == last.index
        ):
            merged[-1] = CallArguments(event.index, last.text + event.text)
        else:
            merged.append(event)
    return merged
