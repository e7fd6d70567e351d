# SPDX-License-Identifier: Apache-2.0
"""One request on its way, in steps that whoever runs several can interleave.

A task is begun, reads its prompt chunk by chunk and then writes cycle by cycle, alone
or together with others. Every step gives events back, and the last one of all steps
gives ``Finished``. A step that raises ends the task: what it computed is not kept.
Between two steps it can be set aside; taken up again, it reads what it had read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from time import perf_counter

from splashpy.cache.prefix import PrefixCache
from splashpy.drafting.drafter import Drafter
from splashpy.engine.constraint import rules_within
from splashpy.engine.cycle import InFlight, launch, settle
from splashpy.engine.lane_claim import LaneClaim, unlimited
from splashpy.engine.memory_ledger import is_refusal
from splashpy.engine.prefill import LARGEST_CHUNK, prefill
from splashpy.engine.request import (
    EngineEvent,
    Finished,
    GenerationRequest,
    LookedUp,
    PrefillProgress,
    Reason,
    TokensCommitted,
)
from splashpy.engine.reuse import begin, leave, set_aside, take_up
from splashpy.engine.sequence import Sequence
from splashpy.errors import ContextLengthError, RequestCancelled
from splashpy.models.target import Target
from splashpy.protocol import Phase


@dataclass(frozen=True, slots=True)
class Means:
    """What requests are answered with.

    Attributes:
        target: the model whose words count.
        drafter: who proposes.
        cache: state of earlier requests, taken over and given back.
        clock: seconds.
        claim: on the memory the text takes.
    """

    target: Target
    drafter: Drafter
    cache: PrefixCache | None
    clock: Callable[[], float] = perf_counter
    claim: LaneClaim = field(default_factory=unlimited)


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
        aside: it holds no rows and takes no step.
        restoring: it was aside, and reads what it had read.

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
        self.ended = self.aside = self.restoring = False
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
        self._spoke = False  # the first token was told
        self._started = self._first = means.clock()

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
        """Tokens still to be read."""
        if self.sequence is None:
            return len(self.request.token_ids)
        return self.sequence.due - self.sequence.state.length

    @property
    def rows(self) -> int:
        """Rows of its text so far; of one that is aside, those it will need."""
        if self.sequence is None:
            return 0
        return max(self.sequence.due, self.sequence.state.length)

    @property
    def phase(self) -> Phase:
        """What it does."""
        if self.aside:
            return "suspended"
        if self.restoring:
            return "restoring"
        return "decode" if self.writing else "prefill"

    @property
    def flying(self) -> bool:
        """Whether a cycle of its own was launched and not settled."""
        return self._flight is not None

    def begin(self) -> Iterator[EngineEvent]:
        """Take up what is stored of the prompt.

        Raises:
            ShortageError: there is no memory for it; nothing has happened.
        """
        means = self._means
        self._started = self._first = means.clock()
        arguments = self.request, means.target, means.drafter, means.cache
        self.sequence, found = begin(*arguments, self.budget, means.claim)
        self._chunks = self._prefill(self.sequence)
        if means.cache is not None:
            yield LookedUp(self.request.id, found)
        yield next(self._chunks)  # tells how much is read already

    def give_up(self) -> Iterator[EngineEvent]:
        """End it in any phase, after the cycle in the air: nobody wants it any more."""
        yield from self.land()
        if self.ended:
            return
        if self.sequence is None or self.aside:
            yield self._finished("cancelled")
        else:
            yield from self._end("cancelled")

    def set_aside(self) -> int:
        """Give up what the text holds, and a cycle in the air; returns the bytes."""
        self._chunks = self._flight = None
        self._means.claim.release()
        self.aside, self.restoring = True, False
        if self.sequence is None:
            return 0
        return set_aside(self.sequence, self._means.target)

    def abandon(self) -> None:
        """End without an answer: what was computed is not kept."""
        self.ended = True
        self._means.claim.release()

    def has_room(self, rows: int) -> bool:
        """Whether the memory for so many rows can be had, while it is aside."""
        return self._means.claim.make_room(rows)

    def take_up(self) -> None:
        """Go on after having been set aside, with what is stored of the text.

        Raises:
            ShortageError: there is no memory for that; it stays aside.
        """
        if self.sequence is not None:
            take_up(self.sequence, self._means.target, self._means.cache)
        self.aside = False
        if self.sequence is None:
            return
        self.restoring = True
        self._chunks = self._prefill(self.sequence)
        next(self._chunks)  # what was read once was told
        self._end_restoring()

    def _end_restoring(self) -> None:
        """Once everything is read again, a text that was being written goes on."""
        sequence = self.begun
        if self.left or not self._spoke:
            return
        self._chunks, self.restoring = None, False
        at = sequence.due
        sequence.drafter.observe(sequence.drafter_state, sequence.tokens[at:], None, at)

    def _prefill(self, sequence: Sequence) -> Iterator[PrefillProgress]:
        means = self._means
        return prefill(
            sequence,
            means.target,
            self._cancelled,
            means.cache,
            self._share,
            means.clock,
        )

    def read(self) -> Iterator[EngineEvent]:
        """Read the next chunk; the last one also brings the first token.

        Raises:
            ShortageError: there is no memory for it; nothing has happened.
        """
        assert self._chunks is not None
        sequence = self.begun
        sequence.claim.cover(sequence.state, min(self.left, LARGEST_CHUNK))
        try:
            progress = next(self._chunks, None)
        except RequestCancelled:
            yield from self._end("cancelled")
            return
        if self.restoring and self._spoke:
            self._end_restoring()
            return
        if progress is not None:  # else only the first token was not told yet
            yield progress
        self.restoring = self.restoring and sequence.state.length < sequence.told
        if self.left:
            return
        self._chunks, self._first = None, self._means.clock()
        self._spoke = True
        if sequence.emitted:
            yield _first_token(sequence, self._first)
        if sequence.finished or self.request.prefill_only:
            yield from self._end(self._why())

    def write(self) -> Iterator[EngineEvent]:
        """One cycle alone, with the next one in the air before it is told."""
        sequence, target = self.begun, self._means.target
        sequence.cover()
        flight = self._flight or launch(sequence, target)
        ahead = launch(sequence, target) if _may_go_ahead(sequence, flight) else None
        event = settle(sequence, flight)
        goes_on = not (sequence.finished or self._cancelled())
        try:
            self._flight = (ahead or launch(sequence, target)) if goes_on else None
        finally:
            yield event  # it is committed, even if there is no memory for the next one
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
        try:
            leave(self.begun, self._means.cache)
        except RuntimeError as error:
            if not is_refusal(error):  # else it is not kept, which costs time only
                raise
        yield self._finished(reason)

    def _finished(self, reason: Reason) -> Finished:
        self.ended = True
        self._means.claim.release()
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
