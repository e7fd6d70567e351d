# SPDX-License-Identifier: Apache-2.0
"""Fenced code blocks of a Markdown text.

A fence is a line of at least three backquotes or tildes, indented by at most three
spaces; it is closed by a line of at least as many of the same character, or by the end
of the text (CommonMark 0.31, 4.5).
"""

from __future__ import annotations

import re

_OPEN = re.compile(r" {0,3}(`{3,}(?=[^`]*$)|~{3,})")


def code_blocks(text: str) -> list[str]:
    """The contents of every fenced block, in order, each ending with a newline."""
    blocks: list[str] = []
    fence = ""
    lines: list[str] = []
    for line in text.split("\n"):
        if not fence:
            match = _OPEN.match(line)
            fence = match[1] if match else ""
            lines = []
        elif _closes(line, fence):
            blocks.append("".join(f"{kept}\n" for kept in lines))
            fence = ""
        else:
            lines.append(line)
    if fence and lines:
        blocks.append("".join(f"{kept}\n" for kept in lines))
    return blocks


def _closes(line: str, fence: str) -> bool:
    mark = line.strip()
    indent = len(line) - len(line.lstrip(" "))
    return indent <= 3 and len(mark) >= len(fence) and set(mark) == {fence[0]}
