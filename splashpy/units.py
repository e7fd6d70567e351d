# SPDX-License-Identifier: Apache-2.0
"""Bytes and token counts, as people write and read them.

Token counts use K = 1024. Sizes are printed in decimal units (GB = 10^9 bytes), as
disks and downloads are.
"""

from __future__ import annotations

import re

_BINARY = {"": 1, "K": 2**10, "M": 2**20}
_TOKENS = re.compile(r"(\d+(?:\.\d+)?)\s*([KM]?)", re.IGNORECASE)


def parse_tokens(text: str) -> int:
    """Tokens meant by ``32K`` or a bare number; K = 1024.

    Raises:
        ValueError: the text is not a count.
    """
    match = _TOKENS.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{text!r} is not a token count; write for example 32K")
    return int(float(match[1]) * _BINARY[match[2].upper()])


def format_bytes(count: int) -> str:
    """Bytes in decimal units with one decimal: ``98.4 MB``, ``17.4 GB``."""
    size = float(count)
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000 or unit == "GB":
            return f"{count} B" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    raise AssertionError("unreachable")


def format_tokens(count: int) -> str:
    """Tokens with K = 1024: ``512``, ``21.4K``, ``96K``."""
    if count < 1024:
        return str(count)
    text = f"{count / 1024:.1f}".removesuffix(".0")
    return f"{text}K"


def format_seconds(seconds: float) -> str:
    """A duration for a person: ``0.28 s``, ``38 s``, ``6 min 20 s``, ``5 h 57 min``."""
    if seconds < 10:
        return f"{seconds:.2f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    hours, rest = divmod(round(whole / 60), 60)
    return f"{hours} h {rest} min"
