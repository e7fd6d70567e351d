# SPDX-License-Identifier: Apache-2.0
"""Colours for code, in pieces small enough to draw between two frames.

Highlighting costs milliseconds per kilobyte, and a block of code grows while it is
written. So code is coloured in runs of some forty lines, each once; what is appended
later never colours an earlier run again. The price: a string or comment that spans two
runs is coloured as code in the second.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

from textual.content import Content
from textual.highlight import highlight

from splashpy.chat.blocks import TextBlock

_RUN_LINES = 40
_LONGEST_RUN_LINES = 80
_MOST_LINES = 2000
_MOST_CHARACTERS = 100_000
_LONGEST_LINE = 2000  # minified code; colours would not help anybody read it


def code_blocks(
    code: str, language: str, first: Content, rest: Content
) -> Iterator[TextBlock]:
    """Code as blocks of one run each; a run that is complete is made only once.

    Args:
        code: sanitized source.
        language: the info string of the fence; its first word names the language.
        first: prefix of the first row.
        rest: prefix of the others.
    """
    lines = code.split("\n")
    name = language.split(maxsplit=1)[0].lower() if language else ""
    too_long = len(lines) > _MOST_LINES or len(code) > _MOST_CHARACTERS
    if too_long or max(map(len, lines)) > _LONGEST_LINE:
        name = ""
    for run in _runs(lines):
        yield _block(run, name, first, rest)
        first = rest


def _runs(lines: list[str]) -> Iterator[str]:
    run: list[str] = []
    for line in lines:
        if len(run) >= _LONGEST_RUN_LINES or (len(run) >= _RUN_LINES and not line):
            yield "\n".join(run)
            run = []
        run.append(line)
    yield "\n".join(run)


@lru_cache(maxsize=256)
def _block(run: str, language: str, first: Content, rest: Content) -> TextBlock:
    spans = []
    if language:
        # tab_size 0 leaves tabs alone, so the spans fit the text as it was written.
        spans = list(highlight(run, language=language, tab_size=0).spans)
    return TextBlock(Content(run, spans), first, rest)
