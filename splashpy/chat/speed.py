# SPDX-License-Identifier: Apache-2.0
"""Everything measured about an answer, as lines for the speed panel and ``/stats``.

Pure: a session in, lines out. A number that is not known is a dash.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from textual.content import Content

from splashpy.chat import meters
from splashpy.chat.entries import Reply
from splashpy.chat.session import Session
from splashpy.chat.theme import FAINT
from splashpy.protocol import Memory, Ready, Spec
from splashpy.sanitize import sanitize_line
from splashpy.units import format_bytes, format_seconds, format_tokens

_LABEL_CELLS = 13
_BAR_CELLS = 14


@dataclass(frozen=True, slots=True)
class Speculation:
    """What drafting did in one answer, running or finished.

    ``decided`` is None where nobody told what was decided before each pass: while an
    answer runs, and by servers that do not say.
    """

    passes: int
    drafted: int
    accepted: int
    tau: float | None
    hist: Mapping[int, int]
    kept: Mapping[int, int]
    proposed: Mapping[int, int]
    decided: Spec | None = None

    @classmethod
    def of(cls, reply: Reply) -> Speculation:
        """The engine's own counts of a finished answer, else those of the meter."""
        if reply.done is not None:
            return cls._finished(reply.done.spec)
        meter = reply.meter
        return cls(
            meter.passes,
            meter.drafted,
            meter.accepted,
            meter.acceptance_length,
            meter.hist,
            meter.kept,
            meter.proposed,
        )

    @classmethod
    def _finished(cls, spec: Spec) -> Speculation:
        return cls(
            spec.cycles,
            spec.drafted,
            spec.accepted,
            spec.tau if spec.cycles else None,
            dict(enumerate(spec.hist, start=1)),
            dict(enumerate(spec.accepted_per_position, start=1)),
            dict(enumerate(spec.drafted_per_position, start=1)),
            spec if _decisions(spec) else None,
        )


def _decisions(spec: Spec) -> int:
    return spec.plain_cycles + spec.drafter_cycles + spec.lookup_cycles


def speed_lines(session: Session, now: float) -> list[Content]:
    """What is measured about the answer that runs, else about the last one.

    Args:
        session: its state.
        now: seconds of the session's clock.
    """
    replies = [entry for entry in session.entries if isinstance(entry, Reply)]
    ready, memory = session.engine.ready, session.engine.memory
    lines = list(_draft_lines(ready))
    if replies:
        lines += _answer_lines(replies[-1], ready, now, plain_rate(session))
    lines += _memory_lines(ready, memory)
    return lines


def _draft_lines(ready: Ready | None) -> Iterator[Content]:
    if ready is None:
        yield _fact("draft", meters.UNKNOWN)
        return
    draft = ready.draft
    words = {"active": "active", "lookup": "lookup only", "off": "off"}
    bits = f", {draft.bits}-bit" if draft.bits else ""
    yield _fact("draft", words[draft.state] + bits)
    if draft.reason:
        yield Content.styled(sanitize_line(draft.reason), FAINT)
    yield _fact("block", f"{ready.block_size} tokens a pass")


def plain_rate(session: Session) -> float | None:
    """Tokens a second of the model alone: of its last answer without any draft.

    None until there was one, which ``/race`` and ``/draft off`` see to.
    """
    for message in reversed(session.tree.messages):
        if isinstance(message, Reply) and message.name == session.model_name:
            done = message.done
            if done is not None and done.spec.cycles and not done.spec.drafted:
                return meters.final_rate(done)
    return None


def _answer_lines(
    reply: Reply, ready: Ready | None, now: float, plain: float | None
) -> Iterator[Content]:
    block_size = ready.block_size if ready is not None else 1
    spec = Speculation.of(reply)
    rate = meters.final_rate(reply.done) if reply.done else reply.meter.rate(now)
    yield Content("")
    yield _fact("speed", meters.format_rate(rate))
    factor = f" ({rate / plain:.2f}x)" if rate and plain else ""
    yield _fact("plain", meters.format_rate(plain) + factor)
    yield _fact("τ", meters.format_acceptance(spec.tau, block_size)[2:])
    yield _fact("passes", f"{spec.passes:,}")
    yield _fact("drafted", f"{spec.drafted:,}")
    yield _fact(
        "accepted", f"{spec.accepted:,} ({_share(spec.accepted, spec.drafted)})"
    )
    yield from _times(reply)
    yield from _decided(spec.decided)
    if spec.passes:
        yield _heading("tokens a pass")
        top = max(max(spec.hist, default=1), block_size)
        most = max(spec.hist.values(), default=1)
        for count in range(1, top + 1):
            yield _bar(f"{count}", spec.hist.get(count, 0), most, spec.passes)
    if spec.proposed:
        yield _heading("accepted by position")
        for position, proposed in sorted(spec.proposed.items()):
            if proposed:
                yield _bar(
                    f"d{position}", spec.kept.get(position, 0), proposed, proposed
                )


def _decided(spec: Spec | None) -> Iterator[Content]:
    """Who was to draft, and what the cost model won and lost by that."""
    if spec is None:
        yield _fact("decided", meters.UNKNOWN)
        return
    yield _heading("decided before a pass")
    passes = _decisions(spec)
    for label, count in (
        ("drafter", spec.drafter_cycles),
        ("lookup", spec.lookup_cycles),
        ("no draft", spec.plain_cycles),
    ):
        yield _fact(label, f"{count:,} ({_share(count, passes)})")
    yield _fact("saved", f"{spec.saved:,.1f} plain steps")
    yield _fact("lost", f"{spec.regret:,.1f} plain steps")


def _times(reply: Reply) -> Iterator[Content]:
    meter = reply.meter
    draft = verify = meters.UNKNOWN
    if meter.passes:
        draft = f"{meter.draft_ms / meter.passes:.1f} ms"
        verify = f"{meter.verify_ms / meter.passes:.1f} ms"
    yield _fact("draft time", f"{draft} a pass")
    yield _fact("verify time", f"{verify} a pass")
    if reply.prefill is not None:
        rate = meters.prefill_rate(reply.prefill)
        text = meters.UNKNOWN if rate is None else f"{rate:,.0f}"
        yield _fact("prefill", f"{text} tok/s")
        yield _fact("cached", f"{reply.prefill.cached:,} of {reply.prefill.total:,}")
    if reply.done is not None:
        timing = reply.done.timing
        yield _fact("first token", format_seconds(timing.ttft_ms / 1000))
        if timing.queue_ms >= 1:
            yield _fact("queued", format_seconds(timing.queue_ms / 1000))


def _memory_lines(ready: Ready | None, memory: Memory | None) -> Iterator[Content]:
    yield _heading("memory")
    if ready is not None and ready.memory.weights:
        yield _fact("weights", format_bytes(ready.memory.weights))
        if ready.memory.draft:
            yield _fact("drafter", format_bytes(ready.memory.draft))
        per_token = format_bytes(ready.memory.kv_per_token)
        yield _fact("per token", f"{per_token} ({ready.memory.kv})")
    if memory is None:
        yield _fact("active", meters.UNKNOWN)
        return
    yield _fact("active", format_bytes(memory.active))
    yield _fact("peak", format_bytes(memory.peak))
    yield _fact("mlx cache", format_bytes(memory.cache))
    yield _fact("kept tokens", format_tokens(memory.kv_tokens))
    style = "" if memory.pressure == "normal" else "$text-warning"
    yield _fact("pressure", memory.pressure, style)


def totals(session: Session) -> list[Content]:
    """What all answers of the conversation together took."""
    done = [
        message.done
        for message in session.tree.messages
        if isinstance(message, Reply) and message.done is not None
    ]
    seconds = sum(item.timing.decode_ms for item in done) / 1000
    passes = sum(item.spec.cycles for item in done)
    saved = sum(item.spec.saved for item in done)
    lost = sum(item.spec.regret for item in done)
    tokens = sum(item.usage.completion for item in done)
    prompt = sum(item.usage.prompt for item in done)
    cached = sum(item.usage.cached for item in done)
    return [
        _heading("this conversation, all branches"),
        _fact("answers", f"{len(done):,}"),
        _fact("tokens", f"{tokens:,} written, {prompt:,} read"),
        _fact("cached", f"{cached:,} ({_share(cached, prompt)})"),
        _fact("passes", f"{passes:,}"),
        _fact("plain steps", f"{saved:,.1f} saved, {lost:,.1f} lost"),
        _fact("writing", format_seconds(seconds)),
    ]


def _heading(text: str) -> Content:
    return Content.styled(f"\n{text}", "bold $text-primary")


def _fact(label: str, value: str, style: str = "") -> Content:
    return Content.assemble(
        Content.styled(f"{label:<{_LABEL_CELLS}}", FAINT), Content.styled(value, style)
    )


def _bar(label: str, count: int, most: int, whole: int) -> Content:
    cells = round(_BAR_CELLS * count / max(most, 1))
    return Content.assemble(
        Content.styled(f"{label:>3} ", FAINT),
        Content.styled("█" * cells, "$text-success"),
        Content.styled("·" * (_BAR_CELLS - cells), FAINT),
        f" {_share(count, whole):>4}",
    )


def _share(part: int, whole: int) -> str:
    return f"{part / whole:.0%}" if whole else meters.UNKNOWN
