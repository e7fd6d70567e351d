# SPDX-License-Identifier: Apache-2.0
"""One running answer: engine events in, protocol events out."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

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
from splashpy.protocol import (
    Cycle,
    Done,
    Event,
    Failure,
    FinishReason,
    Piece,
    Prefill,
    Queued,
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
    """

    id: str
    turn: Turn
    stop_engine: Callable[[str], None]
    return_token_ids: bool = False
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
        accepted = min(event.accepted, committed)
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
        )
        yield from self._rest(later)

    def _finish(self, event: Finished) -> Iterator[Event]:
        reason: FinishReason = "stop" if self.stopped else event.reason
        yield from self._rest(self.turn.finish(reason))
        if reason == "stop" and self.turn.calls:
            reason = "tool_calls"
        waited = event.queue_seconds + event.prefill_seconds
        yield Done(
            id=self.id,
            reason=reason,
            stop_text=self.turn.stop_text,
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

    def _text(self, pieces: tuple[Piece, ...]) -> Event:
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
