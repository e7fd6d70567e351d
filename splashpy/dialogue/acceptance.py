# SPDX-License-Identifier: Apache-2.0
"""Which conversations a chat template renders, found by trying.

Some templates raise at a system message, or at one that is not the first, or at two
user turns in a row; others drop or move such a message without a word. A conversation
of marked messages shows which.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from splashpy.errors import TemplateError

Render = Callable[[Sequence[Mapping[str, Any]], Mapping[str, Any]], str]
"""Messages and template options to text; raises ``TemplateError``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Acceptance:
    """What a template renders completely and in order.

    Attributes:
        system_first: a system message at the beginning.
        system_later: a system message after other turns.
        repeated_user: a user message directly after a user message.
    """

    system_first: bool = True
    system_later: bool = True
    repeated_user: bool = True


def probe(render: Render) -> Acceptance:
    """What the template behind ``render`` accepts.

    A template that renders not even one user message teaches nothing: it counts as
    accepting all, and its own error reaches the person who uses it.
    """
    if not _accepts(render, "user"):
        return Acceptance()
    return Acceptance(
        system_first=_accepts(render, "system", "user"),
        system_later=_accepts(render, "user", "assistant", "system", "user"),
        repeated_user=_accepts(render, "user", "user"),
    )


def _accepts(render: Render, *roles: str) -> bool:
    marks = [f"canary{number}canary" for number in range(len(roles))]
    messages = [
        {"role": role, "content": mark} for role, mark in zip(roles, marks, strict=True)
    ]
    try:
        text = render(messages, {})
    except TemplateError:
        return False
    places = [text.find(mark) for mark in marks]
    return -1 not in places and places == sorted(places)
