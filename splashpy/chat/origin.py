# SPDX-License-Identifier: Apache-2.0
"""An answer coloured by where its tokens came from.

Markdown would hide the boundaries between tokens, so the text is shown raw. Underline
says the same as colour, for eyes and terminals without it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from textual.content import Content

from splashpy.chat.blocks import Block, TextBlock
from splashpy.chat.entries import Reply
from splashpy.chat.theme import FAINT
from splashpy.protocol import Piece
from splashpy.sanitize import sanitize

STYLES = {"a": "$text-success", "t": "underline", "l": "$text-accent"}
_SEGMENT_PIECES = 200  # more spans in one text cost milliseconds in every frame


class OriginView:
    """The blocks of one growing answer; those that are complete stay the same.

    Args:
        readable: what is shown of a text.
    """

    def __init__(self, readable: Callable[[str], str] = str) -> None:
        self._readable = readable
        self._frozen: list[Block] = []
        self._read = 0

    def blocks(self, pieces: Sequence[Piece]) -> list[Block]:
        """All content pieces so far, as blocks.

        Args:
            pieces: of the answer, in order; later calls have more.
        """
        if len(pieces) < self._read:  # another answer's, or forgotten
            self._frozen, self._read = [], 0
        start = self._read
        for end in range(start, len(pieces)):
            whole = end + 1 - start >= _SEGMENT_PIECES
            if whole and pieces[end].text.endswith("\n"):
                self._frozen.append(self._segment(pieces[start : end + 1], whole=True))
                self._read = start = end + 1
        return [*self._frozen, self._segment(pieces[start:], whole=False)]

    def _segment(self, pieces: Sequence[Piece], *, whole: bool) -> TextBlock:
        parts = [
            (sanitize(self._readable(piece.text)), STYLES[piece.kind])
            for piece in pieces
            if piece.channel == "c"
        ]
        if whole and parts:  # the next block begins on a row of its own anyway
            text, style = parts[-1]
            parts[-1] = (text.removesuffix("\n"), style)
        return TextBlock(Content.assemble(*parts))


def legend(reply: Reply) -> Block:
    """What the colours mean, with counts."""
    if reply.text and not reply.pieces:
        text = Content.styled("where these tokens came from is no longer known", FAINT)
        return TextBlock(text)
    spec = reply.done.spec if reply.done else None
    accepted = spec.accepted if spec else reply.meter.accepted
    written = reply.done.usage.completion if reply.done else reply.meter.committed
    return TextBlock(
        Content.assemble(
            (f"{accepted:,} accepted drafts", STYLES["a"]),
            (" · ", FAINT),
            (f"{max(written - accepted, 0):,} the target's own", STYLES["t"]),
            (" · ", FAINT),
            ("repeated text", STYLES["l"]),
        )
    )
