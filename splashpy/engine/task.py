# SPDX-License-Identifier: Apache-2.0
"""One request on its way, in steps that whoever runs several can interleave.

A task is begun, reads its prompt chunk by chunk and then writes cycle by cycle, alone
or together with others. Every step gives events back, and the last one of all steps
gives ``Finished``. A step that raises ends the task: what it computed is not kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from time import perf_counter

from splashpy.cache.prefix import PrefixCache
from splashpy.drafting.drafter import Drafter
from splashpy.engine.constraint import rules_within
from splashpy.engine.cycle import InFlight, launch, settle
from splashpy.engine.prefill import prefill
from splashpy.engine.request import (
    EngineEvent,
    Finished,
    GenerationRequest,
    LookedUp,
    PrefillProgress,
    Reason,
    TokensCommitted,
)
from splashpy.engine.reuse import begin, leave
from splashpy.engine.sequence import Sequence
from splashpy.errors import ContextLengthError, RequestCancelled
from splashpy.models.target import Target


@dataclass(frozen=True, slots=True)
class Means:
    """What requests are answered with.

    Attributes:
        target: the model whose words count.
        drafter: who proposes.
        cache: state of earlier requests, taken over and given back.
    """

    target: Target
    drafter: Drafter
    cache: PrefixCache | None


class Task:
    """The steps of one request.

    Args:
        request: what to continue.
        means: to answer it with.
        cancelled: asked between chunks and between cycles.
        queue_seconds: how long the request waited.
        share: of the usual time of a chunk that one may take, asked before each.

    Attributes:
        sequence: the text; None before it was begun.
        ended: ``Finished`` was given out.

    Raises:
        ContextLengthError: the prompt fills the context.
    """

    def __init__(
        self,
        request: GenerationRequest,
        means: Means,
        cancelled: Callable[[], bool],
        *,
        queue_seconds: float = 0.0,
        share: Callable[[], float] = lambda: 1.0,
    ):
        self.request = request
        self.sequence: Sequence | None = None
        self.ended = False
        self._reason: Reason
        self.budget, self._reason = _budget(request, means.target.facts.context_max)
        if request.prompt_logprobs is not None:
            # Every row of the prompt has to be computed.
            means = replace(means, cache=None)
        self._means = means
        self._cancelled = cancelled
        self._share = share
        self._queue_seconds = queue_seconds
        self._chunks: Iterator[PrefillProgress] | None = None
        self._flight: InFlight | None = None
        self._started = self._first = perf_counter()

    @property
    def cache(self) -> PrefixCache | None:
        """Of the state of other requests."""
        return self._means.cache

    @property
    def cancelled(self) -> bool:
        """Whether nobody wants it any more."""
        return self._cancelled()

    def stored(self) -> int:
        """Tokens of the prompt that memory has; the whole prompt without a cache."""
        if self.cache is None:
            return len(self.request.token_ids)
        return self.cache.look_up(self.request.token_ids).resumed

    @property
    def writing(self) -> bool:
        """Whether the prompt is read and the answer is not complete."""
        return self.sequence is not None and self._chunks is None and not self.ended

    @property
    def left(self) -> int:
        """Tokens of the prompt still to be read."""
        read = self.sequence.state.length if self.sequence else 0
        return len(self.request.token_ids) - read

    @property
    def flying(self) -> bool:
        """Whether a cycle of its own was launched and not settled."""
        return self._flight is not None

    def begin(self) -> Iterator[EngineEvent]:
        """Take up what is stored of the prompt."""
        means = self._means
        self._started = self._first = perf_counter()
        arguments = self.request, means.target, means.drafter, means.cache
        self.sequence, found = begin(*arguments, self.budget)
        self._chunks = prefill(
            self.sequence, means.target, self._cancelled, means.cache, self._share
        )
        if means.cache is not None:
            yield LookedUp(self.request.id, found)
        yield next(self._chunks)  # tells how much is read already

    def give_up(self) -> Iterator[EngineEvent]:
        """End what was not begun."""
        yield self._finished("cancelled")

    def read(self) -> Iterator[EngineEvent]:
        """Read the next chunk; the last one also brings the first token."""
        assert self._chunks is not None
        try:
            progress = next(self._chunks)
        except RequestCancelled:
            yield from self._end("cancelled")
            return
        yield progress
        if self.left:
            return
        self._chunks, self._first = None, perf_counter()
        sequence = self.begun
        if sequence.emitted:
            yield _first_token(sequence, self._first)
        if sequence.finished or self.request.prefill_only:
            yield from self._end(self._why())

    def write(self) -> Iterator[EngineEvent]:
        """One cycle alone, with the next one in the air before it is told."""
        sequence, target = self.begun, self._means.target
        flight = self._flight or launch(sequence, target)
        ahead = launch(sequence, target) if _may_go_ahead(sequence, flight) else None
        event = settle(sequence, flight)
        goes_on = not (sequence.finished or self._cancelled())
        self._flight = (ahead or launch(sequence, target)) if goes_on else None
        yield event
        if not goes_on:
            yield from self._stop()

    def land(self) -> Iterator[EngineEvent]:
        """Settle the cycle in the air, and launch none."""
        flight, self._flight = self._flight, None
        if flight is not None:
            yield from self.settle(flight)

    def settle(self, flight: InFlight) -> Iterator[EngineEvent]:
        """Settle a cycle that was launched with those of others."""
        sequence = self.begun
        yield settle(sequence, flight)
        if sequence.finished or self._cancelled():
            yield from self._stop()

    @property
    def begun(self) -> Sequence:
        """The text, which was begun."""
        assert self.sequence is not None
        return self.sequence

    def _stop(self) -> Iterator[EngineEvent]:
        yield from self._end(self._why() if self.begun.finished else "cancelled")

    def _why(self) -> Reason:
        if self.begun.stopped or self.request.prefill_only:
            return "stop"
        return self._reason

    def _end(self, reason: Reason) -> Iterator[EngineEvent]:
        self._chunks = self._flight = None
        leave(self.begun, self._means.cache)
        yield self._finished(reason)

    def _finished(self, reason: Reason) -> Finished:
        self.ended = True
        return Finished(
            id=self.request.id,
            reason=reason,
            prompt_tokens=len(self.request.token_ids),
            cached_tokens=self.sequence.cached if self.sequence else 0,
            queue_seconds=self._queue_seconds,
            prefill_seconds=self._first - self._started,
            mask_seconds=self.sequence.mask_seconds if self.sequence else 0.0,
        )


def answer_room(prompt: int, context_max: int, *, prefill_only: bool) -> int:
    """Tokens an answer may have after a prompt of ``prompt`` tokens.

    Raises:
        ContextLengthError: none, and an answer is wanted; or less than none.
    """
    room = context_max - prompt
    if room >= (0 if prefill_only else 1):
        return room
    error = ContextLengthError(
        f"the prompt has {prompt} tokens, the context holds {context_max}",
        why="" if room < 0 else "at least one token of the answer must fit",
        fix=["shorten the prompt or start a new conversation"],
    )
    error.prompt_tokens = prompt
    raise error


def _may_go_ahead(sequence: Sequence, flight: InFlight) -> bool:
    """Whether the next cycle is a plain step, whatever the one in flight commits.

    Where rules apply, what it commits decides what may follow.
    """
    if rules_within(sequence, 1) is not None:
        return False
    certain = not len(flight.proposal) and sequence.launched < sequence.budget
    return certain and sequence.drafter.idle(sequence.drafter_state)


def _budget(request: GenerationRequest, context_max: int) -> tuple[int, Reason]:
    prompt = len(request.token_ids)
    room = answer_room(prompt, context_max, prefill_only=request.prefill_only)
    if request.max_new_tokens is None or request.max_new_tokens > room:
        return room, "context_full"
    return request.max_new_tokens, "length"


def _first_token(sequence: Sequence, at: float) -> TokensCommitted:
    return TokensCommitted(
        id=sequence.request.id,
        cycle=0,
        token_ids=(sequence.tokens[-1],),
        sources=("t",),
        drafted=0,
        accepted=0,
        draft_seconds=0.0,
        verify_seconds=0.0,
        at=at,
        logprobs=sequence.first,
    )
