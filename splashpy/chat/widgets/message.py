# SPDX-License-Identifier: Apache-2.0
"""One message, answer or notice as one widget.

A widget draws its rows itself, and only those on screen, so a long answer costs no
more per frame than a short one. The mouse selects source text: prefixes and wrapping
are left out.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

from rich.segment import Segment
from textual import events
from textual.content import Content
from textual.geometry import Region, Size
from textual.selection import Selection
from textual.strip import Strip
from textual.style import Style
from textual.widget import Widget

from splashpy.chat import meters
from splashpy.chat.blocks import BLANK, Block, HeadBlock, Row, TextBlock
from splashpy.chat.document import LiveDocument
from splashpy.chat.emoji import spelled_out
from splashpy.chat.entries import (
    Entry,
    Notice,
    Problem,
    Reply,
    UserMessage,
)
from splashpy.chat.flow import Flow
from splashpy.chat.origin import OriginView, legend
from splashpy.chat.theme import FAINT
from splashpy.sanitize import sanitize, sanitize_line
from splashpy.units import format_bytes, format_seconds

MOST_CHARACTERS = 1_000_000  # of one message; more would keep everybody waiting
_THINKING_ROW = 1  # below the name
_THOUGHT_LINES = 3  # shown while it thinks, but not more than
_THOUGHT_CHARACTERS = 300


class MessageView(Widget):
    """Draws an entry of the transcript.

    Args:
        entry: what to draw.
        emoji: show pictures in text; False spells them out.
    """

    def __init__(self, entry: Entry, *, emoji: bool = True) -> None:
        super().__init__(classes=type(entry).__name__.lower())
        self._readable = str if emoji else spelled_out
        self.entry = entry
        self.show_reasoning = False
        self.show_origin = False
        self._origin = OriginView(self._readable)
        self._flow = Flow()
        self._document = LiveDocument()
        self._characters_read = 0
        self._drawn_revision = -1
        self._drawn_at = 0.0

    def refresh_entry(self, now: float) -> bool:
        """Draw again what changed since the last time.

        Args:
            now: seconds of the clock the entry's moments were taken from.

        Returns:
            Whether anything had changed.
        """
        if self._drawn_revision == self.entry.revision:
            return False
        self._drawn_revision = self.entry.revision
        self._drawn_at = now
        changed_from = self._flow.show(list(self._blocks(now)))
        width, height = self.size
        # A new layout of the whole screen is needed only when the rows change.
        if not width or self._flow.height(width) != height:
            self.refresh(layout=True)
            self.call_after_refresh(self._check_rows)
        elif changed_from < height:
            self.refresh(Region(0, changed_from, width, height - changed_from))
        return True

    def _check_rows(self) -> None:
        """Ask for another layout when the last one had measured fewer rows.

        While a request for a layout is pending Textual does not count a second one, and
        may reuse what it measured in between.
        """
        width, height = self.size
        if width and self._flow.height(width) != height:
            self.refresh(layout=True)

    def colour(self, *, by_origin: bool) -> None:
        """Show where tokens came from, or Markdown again."""
        if self.show_origin != by_origin:
            self.show_origin = by_origin
            self._drawn_revision = -1
            self.refresh_entry(self._drawn_at)

    def toggle_reasoning(self) -> None:
        """Show or fold what the model thought."""
        self.show_reasoning = not self.show_reasoning
        self._drawn_revision = -1
        self.refresh_entry(self._drawn_at)

    # --- what it consists of ------------------------------------------------------

    def _blocks(self, now: float) -> Iterator[Block]:
        match self.entry:
            case UserMessage():
                yield from self._user_blocks(self.entry)
            case Reply():
                yield from self._reply_blocks(self.entry, now)
            case Notice() if self.entry.remark:
                yield from _remark_blocks(self.entry.problem)
            case Notice():
                yield from _problem_blocks(self.entry.problem)
                if self.entry.resolved:
                    yield _faint("this has passed")
                elif self.entry.needs_restart:
                    yield _step("ctrl+r starts the engine again")

    def _user_blocks(self, message: UserMessage) -> Iterator[Block]:
        yield _head("You", "bold $text-accent", message.at, message.place)
        shown = message.text[:MOST_CHARACTERS]
        yield TextBlock(Content(sanitize(self._readable(shown))))
        yield from _rest_blocks(message.text)
        for file in message.attachments:
            size = format_bytes(len(file.text.encode("utf-8", "replace")))
            yield _faint(f"⎘ {sanitize_line(file.name)} ({size})")
        if message.left_out:
            yield _faint("not sent any more, to save context")
        elif not message.in_history:
            yield _faint("failed, not part of the conversation")

    def _reply_blocks(self, reply: Reply, now: float) -> Iterator[Block]:
        name = sanitize_line(reply.name)
        yield _head(name, "bold $text-primary", reply.at, reply.place)
        yield from self._reasoning_blocks(reply, now)
        new = reply.text[self._characters_read : MOST_CHARACTERS]
        self._document.append(self._readable(new))
        self._characters_read += len(new)
        if reply.state in ("complete", "partial", "failed"):
            self._document.finish()
        yield from self._content_blocks(reply)
        yield from _rest_blocks(reply.text)
        if reply.tool_text:
            yield _faint("tool call, not run:")
            yield TextBlock(Content(sanitize(reply.tool_text.strip("\n"))))
        yield from _ending_blocks(reply)

    def _content_blocks(self, reply: Reply) -> Iterator[Block]:
        if not self.show_origin:
            yield from self._document.blocks
            return
        if reply.pieces:
            yield from self._origin.blocks(reply.pieces)
        else:
            yield from self._document.blocks
        if reply.text:
            yield BLANK
            yield legend(reply)

    def _reasoning_blocks(self, reply: Reply, now: float) -> Iterator[Block]:
        if not reply.reasoning:
            return
        yield _faint(f"{'▾' if self.show_reasoning else '▸'} {_thought(reply, now)}")
        text = sanitize(self._readable(reply.reasoning.strip("\n")))
        if not self.show_reasoning:
            if reply.text or reply.state != "writing":
                return
            latest = "\n".join(text.split("\n")[-_THOUGHT_LINES:])
            text = latest[-_THOUGHT_CHARACTERS:]
        bar = Content.styled("│ ", FAINT)
        yield TextBlock(Content.styled(text, FAINT), bar, bar)
        if reply.text:
            yield BLANK

    # --- drawing ------------------------------------------------------------------

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        """Rows the message takes at a width."""
        return self._flow.height(width) if width else 0

    def render_line(self, y: int) -> Strip:
        """One row of the message."""
        width = self.size.width
        found = self._flow.row(y, width)
        if found is None:
            return Strip.blank(width, self.visual_style.rich_style)
        row, line = found
        strip = Strip(self._segments(row, line))
        return strip.extend_cell_length(width, self.visual_style.rich_style)

    def _segments(self, row: Row, line: int) -> Iterator[Segment]:
        base = self.visual_style
        for text, style in row.prefix.render(base, end=""):
            yield Segment(text, style.rich_style)
        column = row.column
        for text, style in self._with_selection(row, line).render(base, end=""):
            # The offset tells Textual which text the mouse points at.
            yield Segment(text, style.rich_style_with_offset(column, line))
            column += len(text)

    def _with_selection(self, row: Row, line: int) -> Content:
        selection = self.text_selection
        span = selection.get_span(line) if selection is not None else None
        if span is None:
            return row.body
        start = max(span[0] - row.column, 0)
        end = len(row.body) if span[1] == -1 else span[1] - row.column
        if end <= start:
            return row.body
        style = Style.from_styles(self.screen.get_component_styles("screen--selection"))
        return row.body.stylize(style, start, end)

    # --- mouse --------------------------------------------------------------------

    def get_selection(self, selection: Selection) -> tuple[str, str] | None:
        """The selected source text."""
        return self._flow.selected(selection, self.size.width), "\n"

    def on_click(self, event: events.Click) -> None:
        """A click on the line about thinking opens or folds it."""
        offset = event.get_content_offset(self)
        thinking = isinstance(self.entry, Reply) and bool(self.entry.reasoning)
        if thinking and offset is not None and offset.y == _THINKING_ROW:
            self.toggle_reasoning()


@lru_cache(maxsize=512)  # the same object: its rows need not be drawn again
def _head(name: str, style: str, at: str, place: tuple[int, int]) -> HeadBlock:
    number, count = place
    siblings = f" ‹{number}/{count}›" if count > 1 else ""
    return HeadBlock(
        Content.styled(name, style),
        Content.assemble(
            Content.styled(at, FAINT), Content.styled(siblings, "$text-accent")
        ),
    )


@lru_cache(maxsize=512)
def _faint(text: str) -> TextBlock:
    return TextBlock(Content.styled(text, FAINT))


def _rest_blocks(text: str) -> Iterator[Block]:
    """What is said in place of text beyond the bound."""
    left = len(text) - MOST_CHARACTERS
    if left > 0:
        amount = meters.count_noun(left, "character")
        yield BLANK
        yield _step(f"{amount} more: choose it (alt+up) and press p for $PAGER")


def _thought(reply: Reply, now: float) -> str:
    tokens = reply.done.usage.reasoning if reply.done else 0
    if tokens:
        amount = meters.count_noun(tokens, "token")
    else:
        amount = meters.count_noun(len(reply.reasoning), "character")
    if reply.thought_seconds is not None:
        return f"thought {format_seconds(reply.thought_seconds)} · {amount}"
    if reply.state != "writing":
        return f"thinking ended early · {amount}"
    seconds = now - (reply.thinking_from or now)
    return f"thinking… {seconds:.0f} s · {amount}"


def _ending_blocks(reply: Reply) -> Iterator[Block]:
    if reply.state in ("waiting", "reading") or (
        reply.state == "writing" and not (reply.text or reply.reasoning)
    ):
        yield _faint("…")
    if reply.done is not None:
        yield BLANK
        yield TextBlock(
            Content.styled(meters.summary(reply.done), FAINT),
            Content.styled("· ", FAINT),
            Content("  "),
        )
    if reply.state == "partial":
        yield BLANK
        yield TextBlock(
            Content.styled(
                "· partial: interrupted here; /continue writes on, alt+r asks again",
                "$text-warning",
            )
        )
    if reply.problem is not None:
        yield from _problem_blocks(reply.problem)


def _remark_blocks(remark: Problem) -> Iterator[Block]:
    first, *more = sanitize(remark.message).split("\n")
    mark = Content.styled("● ", "$text-success")
    yield TextBlock(Content(first), mark, Content("  "))
    for text in (*more, *sanitize(remark.why).split("\n")):
        yield TextBlock(Content.styled(text, FAINT), Content("  "), Content("  "))


def _problem_blocks(problem: Problem) -> Iterator[Block]:
    first, *more = sanitize(problem.message).split("\n")
    yield TextBlock(
        Content.styled(first, "$text-error"),
        Content.styled("✗ ", "$text-error"),
        Content("  "),
    )
    details = [*more, sanitize(problem.why)]
    indent = Content("  ")
    for text in filter(None, details):
        yield TextBlock(Content.styled(text, FAINT), indent, indent)
    yield from map(_step, problem.fix)
    code = sanitize_line(problem.code)
    yield TextBlock(Content.styled(code, FAINT), indent, indent)


def _step(text: str) -> TextBlock:
    arrow = Content.styled("→ ", "$text-primary")
    return TextBlock(Content(sanitize(text)), arrow, Content("  "))
