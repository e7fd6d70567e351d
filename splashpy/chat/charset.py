# SPDX-License-Identifier: Apache-2.0
"""Stand-ins for characters a terminal lacks, where its character set is not UTF-8.

It works on finished rows, so it covers every widget, and it never changes how many
cells a row takes. Texts stay what they are: a copy is exact.
"""

from __future__ import annotations

from functools import lru_cache

from rich.cells import cell_len
from rich.segment import Segment
from textual.color import Color
from textual.filter import LineFilter

_STANDINS = str.maketrans(
    {
        # bars, and the borders of boxes and tables
        **dict.fromkeys("█▓▀▄", "#"),
        **dict.fromkeys("▒", "="),
        **dict.fromkeys("░·", "."),
        **dict.fromkeys("▐", "["),
        **dict.fromkeys("▌", "]"),
        **dict.fromkeys("│┃▎▏", "|"),
        **dict.fromkeys("─━", "-"),
        **dict.fromkeys("┼╭╮╰╯", "+"),
        # marks
        **dict.fromkeys("▸›→", ">"),
        **dict.fromkeys("‹", "<"),
        **dict.fromkeys("▾↓", "v"),
        **dict.fromkeys("↑", "^"),
        **dict.fromkeys("●•", "*"),
        **dict.fromkeys("○◌◦☐", "o"),
        **dict.fromkeys("✗☑", "x"),
        **dict.fromkeys("✓⎘", "+"),
        **dict.fromkeys("◐", "~"),
        # punctuation
        **dict.fromkeys("…", "."),
        **dict.fromkeys("\u2013\u2014", "-"),
        **dict.fromkeys("\u2018\u2019", "'"),
        **dict.fromkeys("\u201c\u201d", '"'),
        **dict.fromkeys("τ", "t"),
    }
)


class CharsetFilter(LineFilter):
    """Leaves only characters in a row that the terminal can show.

    Args:
        encoding: of the terminal.
    """

    def __init__(self, encoding: str):
        super().__init__()
        self._encoding = encoding

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        """The row with stand-ins; as wide as before."""
        return [
            segment
            if segment.control or segment.text.isascii()
            else Segment(encodable(segment.text, self._encoding), segment.style)
            for segment in segments
        ]


@lru_cache(maxsize=1024)
def encodable(text: str, encoding: str) -> str:
    """A text that an encoding has all characters of, as wide as the text.

    Args:
        text: one line, without control characters.
        encoding: a codec's name.
    """
    text = text.translate(_STANDINS)
    return "".join(
        character if _known(character, encoding) else "?" * cell_len(character)
        for character in text
    )


@lru_cache(maxsize=4096)
def _known(character: str, encoding: str) -> bool:
    try:
        character.encode(encoding)
    except UnicodeEncodeError:
        return False
    return True
