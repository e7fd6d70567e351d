# SPDX-License-Identifier: Apache-2.0
"""A prompt through the target in chunks, up to the first token.

Chunks are sized so that one takes about a second: a person who presses Esc waits no
longer than that. They end at multiples of their size, or where the state is to be kept,
so that a prompt resumed at such a place is read in the pieces it was read in before.
The vocabulary head runs for the last row only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from time import perf_counter

import mlx.core as mx

from splashpy.cache.prefix import PrefixCache
from splashpy.drafting.drafter import empty_proposal
from splashpy.engine.constraint import constrained
from splashpy.engine.decision import decide, read
from splashpy.engine.request import PrefillProgress
from splashpy.engine.reuse import keep_places, next_stop
from splashpy.engine.sequence import Sequence
from splashpy.errors import RequestCancelled
from splashpy.models.target import Target

FIRST_CHUNK = 256
LARGEST_CHUNK = 2048
SMALLEST_CHUNK = 32
_CHUNK_SECONDS = 1.0


def prefill(
    sequence: Sequence,
    target: Target,
    cancelled: Callable[[], bool],
    cache: PrefixCache | None = None,
    share: Callable[[], float] = lambda: 1.0,
) -> Iterator[PrefillProgress]:
    """Read the prompt after what the state already holds, then its first token.

    Afterwards the first answer token is committed, unless the request only asked to
    read.

    Args:
        sequence: the text.
        target: reads it.
        cancelled: asked before every chunk.
        cache: where places are kept for.
        share: of the usual time of a chunk, asked before every chunk.

    Yields:
        Progress before the first chunk and after each.

    Raises:
        RequestCancelled: between two chunks, when ``cancelled()``.
        ModelResultError: the target computed NaN.
    """
    prompt = sequence.request.token_ids
    started = perf_counter()
    sequence.drafter.observe(sequence.drafter_state, prompt[: sequence.cached], None, 0)
    yield _progress(sequence, started)
    chunk, rate = FIRST_CHUNK, 0.0
    while sequence.state.length < len(prompt):
        if cancelled():
            raise RequestCancelled
        if rate:
            chunk = next_chunk(rate * share())
        began, position = perf_counter(), sequence.state.length
        ids = prompt[position : chunk_end(position, chunk, next_stop(sequence))]
        _read_chunk(sequence, target, ids)
        keep_places(sequence, cache)
        if len(ids) == chunk:
            rate = len(ids) / (perf_counter() - began)
        yield _progress(sequence, started)


def next_chunk(tokens_per_second: float) -> int:
    """Tokens that take up to a second: a power of two."""
    wanted = int(tokens_per_second * _CHUNK_SECONDS)
    return min(max(1 << wanted.bit_length() >> 1, SMALLEST_CHUNK), LARGEST_CHUNK)


def chunk_end(position: int, chunk: int, stop: int) -> int:
    """Where the chunk from ``position`` ends: at a multiple of its size, or before."""
    return min((position // chunk + 1) * chunk, stop)


def _read_chunk(sequence: Sequence, target: Target, ids: tuple[int, ...]) -> None:
    prompt = sequence.request.token_ids
    position = sequence.state.length
    last = position + len(ids) == len(prompt) and not sequence.request.prefill_only
    forward = target.forward(
        sequence.state, mx.array(ids, dtype=mx.int32), rows=1 if last else 0
    )
    sequence.drafter.observe(sequence.drafter_state, ids, forward.features, position)
    pending = [*sequence.state.arrays]
    if forward.features is not None:
        pending.append(forward.features)
    if last:
        sequence.anchor = mx.array(prompt[-1], dtype=mx.int32)
        nothing = empty_proposal()
        logits = constrained(sequence, forward.logits, nothing)
        decision = decide(sequence, logits, nothing, sequence.state.length - 1)
        mx.eval(decision, pending)
        _commit_first(sequence, decision)
    else:
        mx.eval(pending)


def _commit_first(sequence: Sequence, decision: mx.array) -> None:
    last = len(sequence.request.token_ids) - 1
    run = sequence.commit(read(decision, last).run)
    sequence.anchor = decision[-1]
    sequence.launched = 1
    sequence.drafter.observe(
        sequence.drafter_state, run, None, len(sequence.request.token_ids)
    )


def _progress(sequence: Sequence, started: float) -> PrefillProgress:
    return PrefillProgress(
        id=sequence.request.id,
        total=len(sequence.request.token_ids),
        cached=sequence.cached,
        processed=sequence.state.length,
        elapsed_seconds=perf_counter() - started,
    )
