# SPDX-License-Identifier: Apache-2.0
"""The line above the editor: what the engine does right now, with numbers.

``status`` is a function of the session and the moment; the widget only places it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby

from textual.content import Content
from textual.widget import Widget

from splashpy.chat import meters
from splashpy.chat.entries import Reply
from splashpy.chat.session import Session
from splashpy.chat.settings import ChatSettings
from splashpy.chat.sizes import NARROW
from splashpy.chat.theme import FAINT
from splashpy.protocol import LoadProgress, Prefill
from splashpy.sanitize import sanitize_line
from splashpy.units import format_bytes, format_seconds

_BUSY = "$text-warning"
_GOOD = "$text-success"
_BAD = "$text-error"
_BAR_CELLS = 20
_NARROW_BAR_CELLS = 8
_GAP = "  "
_SPINNER = "◐◓◑◒"
_ASCII_SPINNER = "|/-\\"
_STILL = "·"
_SPINS_PER_SECOND = 4
_SLOW_STOP_SECONDS = 2.0
_LARGEST_DIGIT = 9

NUMBERS = (
    "tok/s: tokens of the last 3 seconds.\n"
    "τ, the acceptance length: tokens per pass of the big model. The token that the\n"
    "big model adds itself counts, so 1 is plain decoding; after / stands the most.\n"
    "Bars: tokens of each of the last 32 passes."
)
"""What the numbers of the line mean."""


@dataclass(frozen=True, slots=True)
class Status:
    """Parts of the line, the most important first, and what stands at its right."""

    parts: tuple[Content, ...]
    hint: str = ""


class StatusLine(Widget):
    """Draws a ``Status``, leaving out what does not fit."""

    def __init__(self) -> None:
        super().__init__()
        self._status = Status(())
        self.tooltip = Content(NUMBERS)

    def show(self, status: Status) -> None:
        """Draw this from now on."""
        self._status = status
        self.refresh()

    def render(self) -> Content:
        """As many parts as fit, and the hint."""
        return fitted(self._status, self.size.width)


def fitted(status: Status, width: int) -> Content:
    """The line at a width: parts give way before the hint does, the last one first."""
    hint = Content.styled(status.hint, FAINT)
    room = width - (hint.cell_length + 2 if status.hint else 0)
    shown: list[Content | str] = []
    used = 0
    for part in status.parts:
        cells = part.cell_length + (len(_GAP) if shown else 0)
        if shown and used + cells > room:
            break
        shown += [_GAP, part] if shown else [part]
        used += cells
    space = max(width - used - hint.cell_length, 1 if status.hint else 0)
    return Content.assemble(*shown, " " * space, hint)


def status(session: Session, now: float, *, width: int) -> Status:
    """What to say about the engine at a moment.

    Args:
        session: its state.
        now: seconds of the session's clock.
        width: cells there are; bars get shorter where there are few.
    """
    engine = session.engine
    reply = session.reply
    spin = _spin(session.settings, now)
    match engine.phase:
        case "starting":
            return Status((Content.styled(f"{spin} starting the engine", _BUSY),))
        case "loading":
            return Status(tuple(_loading(engine.progress, spin, width)))
        case "dead" | "failed":
            text = "✗ the engine stopped" if engine.phase == "dead" else "✗ not loaded"
            return Status((Content.styled(text, _BAD),), "ctrl+r start again")
        case "stuck":
            text = "! the engine does not answer, waiting"
            return Status((Content.styled(text, _BAD),), "ctrl+r restart")
        case "unloaded":
            text = Content.styled("○ unloaded", FAINT)
            return Status((text,), "the next message loads it again")
        case _:
            pass
    if reply is None:
        return Status(tuple(_idle(session)))
    if reply.stopping_since is not None:
        return _stopping(now - reply.stopping_since)
    if reply.state == "writing":
        return Status(tuple(_writing(session, reply, now)), "esc stop")
    if reply.prefill is not None:
        return Status(tuple(_reading(reply.prefill, spin, width)), "esc stop")
    ahead = f", {reply.position} before it" if reply.position else ""
    return Status((Content.styled(f"{spin} waiting{ahead}", _BUSY),), "esc stop")


def _spin(settings: ChatSettings, now: float) -> str:
    """A mark that turns while somebody waits, or one that does not."""
    if not settings.motion:
        return _STILL
    marks = _SPINNER if settings.unicode else _ASCII_SPINNER
    return marks[int(now * _SPINS_PER_SECOND) % len(marks)]


def _idle(session: Session) -> Iterator[Content]:
    yield Content.styled("● ready", _GOOD)
    ready = session.engine.ready
    if ready is not None and ready.draft.state != "active":
        reason = f": {ready.draft.reason}" if ready.draft.reason else ""
        label = "lookup only" if ready.draft.state == "lookup" else "no draft"
        yield Content.styled(sanitize_line(f"{label}{reason}"), FAINT)
    if session.engine.pressure != "normal":
        yield Content.styled("memory is short", _BUSY)


def _stopping(seconds: float) -> Status:
    slow = seconds >= _SLOW_STOP_SECONDS
    line = Content.styled("◌ stopping…", _BUSY)
    return Status((line,), "ctrl+r restart the engine" if slow else "")


def _loading(progress: LoadProgress | None, spin: str, width: int) -> Iterator[Content]:
    if progress is None:
        yield Content.styled(f"{spin} loading", _BUSY)
        return
    yield Content.styled(f"{spin} {meters.LOAD_PHASES[progress.phase]}", _BUSY)
    if progress.total:
        yield bar(progress.done, progress.total, width=width)
    if progress.unit == "bytes":
        total = f" / {format_bytes(progress.total)}" if progress.total else ""
        yield Content(f"{format_bytes(progress.done)}{total}")
        if progress.rate:
            yield Content.styled(f"{format_bytes(int(progress.rate))}/s", FAINT)
    elif progress.total:
        yield Content(f"{progress.done:,} / {progress.total:,} {progress.unit}")


def _reading(prefill: Prefill, spin: str, width: int) -> Iterator[Content]:
    done, total, cached = prefill.processed, prefill.total, prefill.cached
    words = "reading prompt" if width >= NARROW else "reading"
    yield Content.styled(f"{spin} {words}", _BUSY)
    yield bar(done, total, first=cached, width=width)
    yield Content(f"{done:,} / {total:,}")
    if cached:
        yield Content.styled(f"{cached:,} cached", _GOOD)
    rate = meters.prefill_rate(prefill)
    if rate is not None:
        yield Content.styled(f"{rate:,.0f} tok/s", FAINT)
        yield Content.styled(f"~{format_seconds((total - done) / rate)}", FAINT)


def _writing(session: Session, reply: Reply, now: float) -> Iterator[Content]:
    ready = session.engine.ready
    block_size = ready.block_size if ready is not None else 1
    meter = reply.meter
    rate = meters.format_rate(meter.rate(now))
    yield Content.assemble(Content.styled("● ", _GOOD), rate)
    if block_size > 1:
        yield Content(meters.format_acceptance(meter.acceptance_length, block_size))
        shown = _sparkline if session.settings.unicode else _counts
        yield shown(list(meter.spark), block_size)
    yield Content.styled(meters.count_noun(meter.committed, "token"), FAINT)
    yield Content.styled(f"{now - reply.sent_at:.0f} s", FAINT)


def _sparkline(committed: list[int], block_size: int) -> Content:
    """The tokens of each pass as bars."""
    bars = [meters.spark_bar(count, block_size) for count in committed]
    return _by_pass(bars, committed, block_size)


def _counts(committed: list[int], block_size: int) -> Content:
    """The tokens of each pass as digits, where a terminal has no bars."""
    digits = [str(min(count, _LARGEST_DIGIT)) for count in committed]
    return _by_pass(digits, committed, block_size)


def _by_pass(cells: list[str], committed: list[int], block_size: int) -> Content:
    """One cell a pass; neighbours of one colour are one span, which draws faster."""

    def style(pair: tuple[str, int]) -> str:
        plain = _BUSY if pair[1] <= 1 else "$text-primary"
        return _GOOD if pair[1] >= block_size else plain

    runs = groupby(zip(cells, committed, strict=True), key=style)
    return Content.assemble(
        *(("".join(cell for cell, _ in run), colour) for colour, run in runs)
    )


def bar(done: int, total: int, *, width: int, first: int = 0) -> Content:
    """A progress bar: ▓ the first part, ▒ what came after it, ░ what is left.

    Args:
        done: how much is finished, ``first`` included.
        total: all of it.
        width: cells of the whole line; the bar takes a part of them.
        first: how much was there from the start.
    """
    total = max(total, 1)
    cells = _BAR_CELLS if width >= NARROW else _NARROW_BAR_CELLS
    kept = min(first, total) * cells // total
    filled = max(min(done, total) * cells // total - kept, 0)
    return Content.assemble(
        Content.styled("▐", FAINT),
        Content.styled("▓" * kept, _GOOD),
        Content.styled("▒" * filled, "$text-primary"),
        Content.styled("░" * (cells - kept - filled) + "▌", FAINT),
    )
