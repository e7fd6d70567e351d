# SPDX-License-Identifier: Apache-2.0
"""One request from prompt to end: prefill, then cycles until done."""

from __future__ import annotations

from collections.abc import Callable, Iterator
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
    Reason,
    TokensCommitted,
)
from splashpy.engine.reuse import begin, leave
from splashpy.engine.sequence import Sequence
from splashpy.errors import ContextLengthError, RequestCancelled
from splashpy.models.target import Target


def generate(
    request: GenerationRequest,
    target: Target,
    drafter: Drafter,
    cache: PrefixCache | None,
    *,
    cancelled: Callable[[], bool],
    queue_seconds: float = 0.0,
) -> Iterator[EngineEvent]:
    """Answer one request; the last event is ``Finished``.

    Args:
        request: what to continue.
        target: the model whose words count.
        drafter: who proposes.
        cache: state of earlier requests, taken over and given back.
        cancelled: asked between prefill chunks and between cycles.
        queue_seconds: how long the request waited.

    Raises:
        ContextLengthError: the prompt fills the context.
        ModelResultError: the target computed NaN.
    """
    budget, budget_reason = _budget(request, target.facts.context_max)
    started = perf_counter()
    if request.prompt_logprobs is not None:
        cache = None  # every row of the prompt has to be computed
    sequence, found = begin(request, target, drafter, cache, budget)
    reason: Reason = "cancelled"
    first = started
    sound = False
    try:
        if cache is not None:
            yield LookedUp(request.id, found)
        yield from prefill(sequence, target, cancelled, cache)
        first = perf_counter()
        if sequence.emitted:
            yield _first_token(sequence, first)
            yield from _cycles(sequence, target, cancelled)
        reason = _reason(sequence, budget_reason)
        sound = True
    except RequestCancelled:
        sound = True
    finally:
        # Rows computed from broken numbers must not reach a later request.
        if sound:
            leave(sequence, cache)
    yield Finished(
        id=request.id,
        reason=reason,
        prompt_tokens=len(request.token_ids),
        cached_tokens=sequence.cached,
        queue_seconds=queue_seconds,
        prefill_seconds=first - started,
        mask_seconds=sequence.mask_seconds,
    )


def _cycles(
    sequence: Sequence, target: Target, cancelled: Callable[[], bool]
) -> Iterator[TokensCommitted]:
    if sequence.finished:
        return
    flight = launch(sequence, target)
    while True:
        ahead = launch(sequence, target) if _may_go_ahead(sequence, flight) else None
        event = settle(sequence, flight)
        if sequence.finished:
            yield event
            return
        if cancelled():
            yield event
            raise RequestCancelled
        flight = ahead or launch(sequence, target)
        yield event


def _may_go_ahead(sequence: Sequence, flight: InFlight) -> bool:
    """Whether the next cycle is a plain step, whatever the one in flight commits.

    Where rules apply, what it commits decides what may follow.
    """
    if rules_within(sequence, 1) is not None:
        return False
    certain = not len(flight.proposal) and sequence.launched < sequence.budget
    return certain and sequence.drafter.idle(sequence.drafter_state)


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


def _budget(request: GenerationRequest, context_max: int) -> tuple[int, Reason]:
    prompt = len(request.token_ids)
    room = answer_room(prompt, context_max, prefill_only=request.prefill_only)
    if request.max_new_tokens is None or request.max_new_tokens > room:
        return room, "context_full"
    return request.max_new_tokens, "length"


def _reason(sequence: Sequence, budget_reason: Reason) -> Reason:
    if sequence.stopped or sequence.request.prefill_only:
        return "stop"
    return budget_reason


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
