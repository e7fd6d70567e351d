# SPDX-License-Identifier: Apache-2.0
"""What a request takes from earlier ones, and what it leaves for later ones."""

from __future__ import annotations

from dataclasses import replace

import mlx.core as mx

from splashpy.cache.lookup import Lookup
from splashpy.cache.plan import plan
from splashpy.cache.prefix import PrefixCache, Taken
from splashpy.drafting.drafter import Drafter, KeepsContext
from splashpy.engine.lane_claim import LaneClaim
from splashpy.engine.request import GenerationRequest
from splashpy.engine.sequence import Sequence
from splashpy.models.dflash2_context import DrafterContext
from splashpy.models.target import Target

_RESERVE = 1024  # answer rows reserved up front; a longer answer grows its state


def begin(
    request: GenerationRequest,
    target: Target,
    drafter: Drafter,
    cache: PrefixCache | None,
    budget: int,
    claim: LaneClaim,
) -> tuple[Sequence, Lookup]:
    """A sequence that holds as much of the prompt as is stored.

    Args:
        request: what to continue.
        target: of the sequence.
        drafter: of the sequence.
        cache: state of earlier requests; None where none is kept.
        budget: answer tokens at most.
        claim: on the memory of the sequence.

    Raises:
        ShortageError: there is less than what is stored takes; nothing is claimed.
    """
    sequence = Sequence(
        request=request,
        state=target.new_state(0),
        drafter=drafter,
        drafter_state=drafter.new_state(),
        budget=budget,
        tokens=list(request.token_ids),
        anchor=mx.array(0, dtype=mx.int32),
        claim=claim,
    )
    found = take_up(sequence, target, cache)
    sequence.cached = sequence.told = found.resumed
    return sequence, found


def take_up(sequence: Sequence, target: Target, cache: PrefixCache | None) -> Lookup:
    """Give a text that holds no rows what is stored of its tokens.

    Args:
        sequence: new, or set aside.
        target: of the sequence.
        cache: state of earlier requests; None where none is kept.

    Raises:
        ShortageError: there is less memory than that takes; nothing is claimed.
    """
    try:
        return _take_up(sequence, target, cache)
    except BaseException:
        sequence.claim.release()
        raise


def _take_up(sequence: Sequence, target: Target, cache: PrefixCache | None) -> Lookup:
    request, drafter = sequence.request, sequence.drafter
    left = sequence.budget - sequence.emitted
    room = len(sequence.tokens) + min(left, _RESERVE) + drafter.block_size
    taken = Taken(Lookup(length=len(sequence.tokens)))
    if cache is not None:
        taken = cache.take(sequence.tokens, room, sequence.claim)
        sequence.plan = plan(
            cache.policy,
            cached=taken.found.resumed,
            length=len(request.token_ids),
            marks=request.marks,
            junction=taken.found.junction,
        )
    sequence.state = target.new_state(room) if taken.state is None else taken.state
    sequence.claim.own(sequence.state, cache.kept if cache is not None else ())
    sequence.places = taken.places
    if taken.draft is not None and isinstance(drafter, KeepsContext):
        drafter.take_up(sequence.drafter_state, taken.draft)
    return taken.found


def set_aside(sequence: Sequence, target: Target) -> int:
    """Give up all rows of a text, and a cycle in flight; its tokens are kept.

    Returns:
        Bytes the state held.
    """
    held = sequence.state.nbytes
    sequence.state = target.new_state(0)
    sequence.drafter_state = sequence.drafter.new_state()
    sequence.plan, sequence.places = {}, {}
    sequence.anchor = mx.array(sequence.tokens[-1], dtype=mx.int32)
    sequence.launched = sequence.emitted
    mx.clear_cache()  # mlx would keep the buffers for itself
    return held


def reachable(sequence: Sequence, common: int) -> int:
    """Of the first ``common`` tokens of a prompt that is read, how many can be lent."""
    if sequence.state.cut_anywhere:
        return common
    kept = [*sequence.plan, *sequence.state.checkpoints]
    return max((place for place in kept if place <= common), default=0)


def lend(sequence: Sequence, length: int, cache: PrefixCache) -> None:
    """Store a copy of what a running request read of its prompt.

    Args:
        sequence: which goes on unchanged.
        length: tokens another prompt begins with as well.
        cache: takes the copy.
    """
    length = sequence.state.nearest(length)
    if length < cache.policy.shortest or length in (0, sequence.state.length):
        return
    if not sequence.claim.fits(length + _RESERVE):
        return
    prompt = sequence.request.token_ids[:length]
    state = sequence.state.branch(length, length + _RESERVE)
    places = {at: replace(p) for at, p in sequence.places.items() if at <= length}
    cache.insert(prompt, state, draft=_lent_context(sequence, length), places=places)


def _lent_context(sequence: Sequence, length: int) -> DrafterContext | None:
    context = _context(sequence)
    if context is None:
        return None
    copied = context.copy()
    mx.eval(copied.arrays)
    copied.cut(length)
    return copied if len(copied) else None


def next_stop(sequence: Sequence) -> int:
    """Where reading must stop for a place to be kept; at the end where nowhere before.

    What was told once is not told again: reading also stops where that ends.
    """
    at = sequence.state.length
    stops = [sequence.due]
    if at < sequence.told:
        stops.append(sequence.told)
    if not sequence.state.cut_anywhere:
        stops += [place for place in sequence.plan if place > at]
    return min(stops)


def keep_places(sequence: Sequence, cache: PrefixCache | None) -> None:
    """Note the planned places that were read; keep the state where one ends now."""
    if cache is None:
        return
    state = sequence.state
    for at in [at for at in sequence.plan if at <= state.length]:
        kind = sequence.plan.pop(at)
        if state.cut_anywhere:
            sequence.places[at] = cache.place(kind)
        elif at == state.length and sequence.claim.may_keep(state):
            state.keep()
            sequence.places[at] = cache.place(kind, _copied_context(sequence))


def leave(sequence: Sequence, cache: PrefixCache | None) -> None:
    """Hand a sound state over to the cache."""
    if cache is None:
        return
    sequence.settle_rows()
    state, context = sequence.state, _context(sequence)
    mx.eval(state.arrays, context.arrays if context else [])
    cache.insert(
        sequence.tokens[: state.length],
        state,
        draft=context,
        places={at: replace(about) for at, about in sequence.places.items()},
        asked=sequence.request.prefill_only,
    )


def _context(sequence: Sequence) -> DrafterContext | None:
    """The drafter's context, if it has all of the committed rows."""
    if not isinstance(sequence.drafter, KeepsContext):
        return None
    context = sequence.drafter.keep(sequence.drafter_state)
    if context is None or context.position != sequence.state.length:
        return None
    return context


def _copied_context(sequence: Sequence) -> DrafterContext | None:
    """A copy of the context, where that is no longer than a window."""
    context = _context(sequence)
    if context is None or not context.bounded:
        return None
    copied = context.copy()
    mx.eval(copied.arrays)
    return copied
