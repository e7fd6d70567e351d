# SPDX-License-Identifier: Apache-2.0
"""A document of ``splashpy.bench/1`` as bars to look at, in SVG.

Drawn by hand: a few rectangles need no library.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from xml.sax.saxutils import escape

from splashpy.bench.report import committed

_ROW, _LEFT, _BAR, _TOP = 22, 180, 420, 40  # pixels of a drawing


def speedup_bars(document: Mapping[str, Any]) -> str:
    """An SVG drawing: the speed-up of every prompt, with its interval."""
    found = [row for row in document["prompts"] if row["ratio"]]
    return _bars(
        "Speed-up against plain decoding, with 95 % intervals",
        [f"{row['kind']} {row['prompt']}" for row in found],
        [(row["ratio"], row["low"], row["high"]) for row in found],
        mark=1.0,
    )


def tau_bars(document: Mapping[str, Any]) -> str:
    """An SVG drawing: how many passes committed how many tokens."""
    counts = committed(document)
    shares = [100 * count / (sum(counts) or 1) for count in counts]
    return _bars(
        "Passes by the tokens they committed, in percent",
        [f"{tokens} token{'s' * (tokens > 1)}" for tokens, _ in enumerate(counts, 1)],
        [(share, share, share) for share in shares],
    )


def _bars(
    title: str,
    labels: Sequence[str],
    values: Sequence[tuple[float, float, float]],
    mark: float | None = None,
) -> str:
    """Horizontal bars with whiskers from the second to the third value."""
    longest = max((high for _, _, high in values), default=0.0) or 1.0
    height = _TOP + _ROW * len(labels) + 10
    width = _LEFT + _BAR + 60

    def at(value: float) -> float:
        return round(_LEFT + _BAR * value / longest, 1)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        'font-family="sans-serif" font-size="12">',
        f'<rect width="{width}" height="{height}" fill="white"/>',
        f'<text x="10" y="22" font-size="14">{escape(title)}</text>',
    ]
    for row, (label, (value, low, high)) in enumerate(zip(labels, values, strict=True)):
        top = _TOP + row * _ROW
        middle = top + 8
        parts += [
            f'<text x="{_LEFT - 8}" y="{top + 12}" text-anchor="end">'
            f"{escape(label)}</text>",
            f'<rect x="{_LEFT}" y="{top}" width="{at(value) - _LEFT:.1f}" height="16" '
            'fill="#4c78a8"/>',
            f'<path d="M{at(low)} {middle}H{at(high)}" stroke="black"/>',
            f'<text x="{at(high) + 6}" y="{top + 12}">{value:.2f}</text>',
        ]
    if mark is not None:
        parts.append(
            f'<path d="M{at(mark)} {_TOP - 6}V{height - 8}" stroke="#e45756" '
            'stroke-dasharray="4"/>'
        )
    return "\n".join([*parts, "</svg>"]) + "\n"
