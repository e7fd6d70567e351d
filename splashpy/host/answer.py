# SPDX-License-Identifier: Apache-2.0
"""One running answer: engine events in, protocol events out."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

from splashpy.dialogue.turn import CallPart, Turn
from splashpy.engine.request import (
    EngineEvent,
    Failed,
    Finished,
    PrefillProgress,
    TokensCommitted,
    Waiting,
)
from splashpy.errors import ContextLengthError, SplashError
from splashpy.host.counts import SpecCounts
from splashpy.host.form import is_met
from splashpy.host.ranked import RankedTokens
from splashpy.protocol import (
    Constraint,
    Cycle,
    Done,
    Event,
    Failure,
    FinishReason,
    Piece,
    Prefill,
    Queued,
    RankedToken,
    Timing,
    ToolDelta,
    Usage,
    error_fields,
)


@dataclass(slots=True)
class Answer:
    """Text, counts and times of one request.

    Attributes:
        id: the request.
        turn: its text so far.
        stop_engine: called when the text is complete before the engine knows it.
        return_token_ids: repeat token ids in every cycle event.
        ranked: how likely tokens were; None where nobody asked.
        constraint: what the answer has to look like; None: anything.
        reasons_anyway: the model could not be told not to reason.
    """

    id: str
    turn: Turn
    stop_engine: Callable[[str], None]
    return_token_ids: bool = False
    ranked: RankedTokens | None = None
    constraint: Constraint | None = None
    reasons_anyway: bool = False
    content: list[str] = field(default_factory=list)
    counts: SpecCounts = field(default_factory=SpecCounts)
    prompt_tokens: int = 0
    stopped: bool = False
    first_at: float = 0.0
    last_at: float = 0.0
    first_emission: int = 0

    def follow(self, event: EngineEvent) -> Iterator[Event]:
        """What an engine event means to whoever asked."""
        if isinstance(event, Waiting):
            yield Queued(id=self.id, position=event.position)
        elif isinstance(event, PrefillProgress):
            yield Prefill(
                id=self.id,
                total=event.total,
                cached=event.cached,
                processed=event.processed,
                elapsed_ms=1e3 * event.elapsed_seconds,
                logprobs=self.ranked.prompt(event.logprobs) if self.ranked else (),
            )
        elif isinstance(event, TokensCommitted):
            if not self.stopped:
                yield from self._cycle(event)
        elif isinstance(event, Finished):
            yield from self._finish(event)
        elif isinstance(event, Failed):
            yield failure(event.error, self.id, fatal=event.fatal)

    def _cycle(self, event: TokensCommitted) -> Iterator[Event]:
        delta = self.turn.feed(event.token_ids, event.sources)
        committed = delta.tokens_used
        if self.ranked:
            self.ranked.add(event.logprobs[:committed])
        accepted = min(event.accepted, committed)
        self.counts.looked_up += event.sources[:committed].count("l")
        if event.cycle:
            self.counts.note(
                drafted=event.drafted,
                accepted=accepted,
                committed=committed,
                by=event.by,
                cost=event.cost,
            )
        else:
            self.first_at = event.at
            self.first_emission = committed
        self.last_at = event.at
        if delta.stopped:
            self.stopped = True
            self.stop_engine(self.id)
        self._keep(delta.parts)
        pieces, later = _split(delta.parts)
        yield Cycle(
            id=self.id,
            i=event.cycle,
            drafted=event.drafted,
            accepted=accepted,
            committed=committed,
            draft_ms=1e3 * event.draft_seconds,
            verify_ms=1e3 * event.verify_seconds,
            pieces=pieces,
            token_ids=event.token_ids[:committed] if self.return_token_ids else (),
            logprobs=self._settled(),
        )
        yield from self._rest(later)

    def _finish(self, event: Finished) -> Iterator[Event]:
        reason: FinishReason = "stop" if self.stopped else event.reason
        parts = self.turn.finish(reason)
        if self.turn.stop_text:  # it may stand in text that was held back until now
            reason = "stop"
        self._keep(parts)
        if logprobs := self._settled():
            pieces, parts = _split(parts)
            yield replace(self._text(pieces), logprobs=logprobs)
        yield from self._rest(parts)
        if reason == "stop" and self.turn.calls:
            reason = "tool_calls"
        waited = event.queue_seconds + event.prefill_seconds
        yield Done(
            id=self.id,
            reason=reason,
            stop_text=self.turn.stop_text,
            valid=self._valid(reason),
            reasons_anyway=self.reasons_anyway,
            usage=Usage(
                prompt=event.prompt_tokens,
                cached=event.cached_tokens,
                completion=self.turn.completion_tokens,
                reasoning=self.turn.reasoning_tokens,
            ),
            timing=Timing(
                queue_ms=1e3 * event.queue_seconds,
                prefill_ms=1e3 * event.prefill_seconds,
                ttft_ms=1e3 * waited if self.first_emission else 0.0,
                decode_ms=1e3 * (self.last_at - self.first_at),
                first_emission_tokens=self.first_emission,
                mask_ms=1e3 * event.mask_seconds,
            ),
            spec=self.counts.to_spec(),
        )

    def _rest(self, parts: tuple[Piece | CallPart, ...]) -> Iterator[Event]:
        """Calls, and text after them or held back, as cycles that commit nothing."""
        while parts:
            pieces, later = _split(parts)
            if pieces:
                yield self._text(pieces)
            if later:
                yield self._call(later[0])
            parts = later[1:]

    def _call(self, part: Piece | CallPart) -> Event:
        assert isinstance(part, CallPart)
        return ToolDelta(
            id=self.id,
            index=part.index,
            call_id=part.call_id,
            name=part.name,
            args_delta=part.arguments,
            ended=part.ended,
        )

    def _keep(self, parts: tuple[Piece | CallPart, ...]) -> None:
        """Remember the content, where it has to be looked at in the end."""
        if self.constraint is not None:
            pieces = (part for part in parts if isinstance(part, Piece))
            self.content += [piece.text for piece in pieces if piece.channel == "c"]

    def _valid(self, reason: FinishReason) -> bool | None:
        if self.constraint is None or reason == "tool_calls":
            return None
        whole = reason == "stop" and not self.turn.stop_text
        return whole and is_met(self.constraint, "".join(self.content))

    def _settled(self) -> tuple[RankedToken, ...]:
        return self.ranked.take(self.turn.settled()) if self.ranked else ()

    def _text(self, pieces: tuple[Piece, ...]) -> Cycle:
        return Cycle(
            id=self.id,
            i=self.counts.cycles,
            drafted=0,
            accepted=0,
            committed=0,
            draft_ms=0.0,
            verify_ms=0.0,
            pieces=pieces,
        )


def failure(error: SplashError, request_id: str, *, fatal: bool = False) -> Failure:
    """The event that tells of an error."""
    prompt = error.prompt_tokens if isinstance(error, ContextLengthError) else 0
    return Failure(id=request_id, fatal=fatal, prompt=prompt, **error_fields(error))


def _split(
    parts: tuple[Piece | CallPart, ...],
) -> tuple[tuple[Piece, ...], tuple[Piece | CallPart, ...]]:
    """The texts before the first part of a call, and everything from there on."""
    pieces = tuple(itertools.takewhile(lambda part: isinstance(part, Piece), parts))
    return pieces, parts[len(pieces) :]  # type: ignore[return-value]
