# SPDX-License-Identifier: Apache-2.0
"""JSON text rewritten without being turned into numbers and back.

A number keeps its digits (``3.10`` stays ``3.10``, ``1e400`` does not become infinite),
objects keep their order, and a raw line break inside a string, which JSON forbids but
models write, becomes an escape.
"""

from __future__ import annotations

import json
import re

_STRING = re.compile(r'"(?:[^"\\]|\\.)*"', re.DOTALL)
_CONTROL = re.compile(r"[\x00-\x1f]")
_SPACE = re.compile(r"[ \t\r\n]+")
_LONE = re.compile("[\ud800-\udfff]")


def quoted(text: str) -> str:
    """The text as a JSON string."""
    return f'"{escaped(text)}"'


def escaped(text: str) -> str:
    """The text as it stands between the quotes of a JSON string.

    Lone surrogates become U+FFFD: no UTF-8 can carry them.
    """
    return json.dumps(_LONE.sub("\ufffd", text), ensure_ascii=False)[1:-1]


def compact(text: str) -> str | None:
    """The same JSON without white space; None for text that is not JSON."""
    try:
        json.loads(text, strict=False, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return None
    parts = []
    at = 0
    for match in _STRING.finditer(text):
        parts.append(_SPACE.sub("", text[at : match.start()]))
        parts.append(_CONTROL.sub(_escape, match[0]))
        at = match.end()
    parts.append(_SPACE.sub("", text[at:]))
    return "".join(parts)


def _escape(match: re.Match[str]) -> str:
    return json.dumps(match[0])[1:-1]


def _refuse(name: str) -> None:
    raise ValueError(name)
