# SPDX-License-Identifier: Apache-2.0
"""A text through the target in chunks: a prompt up to the first token.

Chunks are sized so that one takes about a second: a person who presses Esc waits no
longer than that. They end at multiples of their size, or where the state is to be kept,
so that a prompt resumed at such a place is read in the pieces it was read in before.
The vocabulary head runs for the last row only. A text that was set aside is read again
up to where it was, and decides nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from time import perf_counter

import mlx.core as mx

from splashpy.cache.prefix import PrefixCache
from splashpy.drafting.drafter import empty_proposal
from splashpy.engine.constraint import constrained
from splashpy.engine.decision import decide, drawn_from, read
from splashpy.engine.ranking import rank_decided, rank_prompt, read_prompt
from splashpy.engine.request import PrefillProgress
from splashpy.engine.reuse import keep_places, next_stop
from splashpy.engine.sequence import Sequence
from splashpy.errors import RequestCancelled
from splashpy.models.target import Target
from splashpy.verification.logprobs import TokenLogprob, read_ranking

FIRST_CHUNK = 256
LARGEST_CHUNK = 2048
SMALLEST_CHUNK = 32
_CHUNK_SECONDS = 1.0
_INSTANT = 1e-9  # seconds; a clock may stand still
_RANKED_CHUNK = 128  # rows whose logits are kept together, where they are asked for


def prefill(
    sequence: Sequence,
    target: Target,
    cancelled: Callable[[], bool],
    cache: PrefixCache | None = None,
    share: Callable[[], float] = lambda: 1.0,
    clock: Callable[[], float] = perf_counter,
) -> Iterator[PrefillProgress]:
    """Read a text after what the state already holds; of a prompt, its first token.

    After a prompt the first answer token is committed, unless the request only asked to
    read. A text that was being written is read up to its anchor.

    Args:
        sequence: the text.
        target: reads it.
        cancelled: asked before every chunk.
        cache: where places are kept for.
        share: of the usual time of a chunk, asked before every chunk.
        clock: seconds.

    Yields:
        Progress before the first chunk and after each.

    Raises:
        RequestCancelled: between two chunks, when ``cancelled()``.
        ShortageError: there is no memory for the next chunk.
        ModelResultError: the target computed NaN.
    """
    text = tuple(sequence.tokens[: sequence.due])
    started, stored = clock(), sequence.state.length
    sequence.drafter.observe(sequence.drafter_state, text[:stored], None, 0)
    yield _progress(sequence, clock() - started)
    ranked = sequence.request.prompt_logprobs is not None
    chunk, rate = (_RANKED_CHUNK if ranked else FIRST_CHUNK), 0.0
    while sequence.state.length < len(text):
        if cancelled():
            raise RequestCancelled
        if rate:
            chunk = next_chunk(rate * share())
        began, position = clock(), sequence.state.length
        ids = text[position : chunk_end(position, chunk, next_stop(sequence))]
        logprobs = _read_chunk(sequence, target, ids)
        keep_places(sequence, cache)
        if len(ids) == chunk and not ranked:
            rate = len(ids) / max(clock() - began, _INSTANT)
        yield _progress(sequence, clock() - started, logprobs)


def next_chunk(tokens_per_second: float) -> int:
    """Tokens that take up to a second: a power of two."""
    wanted = int(tokens_per_second * _CHUNK_SECONDS)
    return min(max(1 << wanted.bit_length() >> 1, SMALLEST_CHUNK), LARGEST_CHUNK)


def chunk_end(position: int, chunk: int, stop: int) -> int:
    """Where the chunk from ``position`` ends: at a multiple of its size, or before."""
    return min((position // chunk + 1) * chunk, stop)


def _read_chunk(
    sequence: Sequence, target: Target, ids: tuple[int, ...]
) -> tuple[TokenLogprob, ...]:
    """Read a part of a text; what was asked about the tokens after its rows."""
    request, position = sequence.request, sequence.state.length
    last = position + len(ids) == sequence.due and not sequence.emitted
    last = last and not request.prefill_only
    ranked = request.prompt_logprobs is not None and position >= sequence.told
    rows = len(ids) if ranked else 1 if last else 0
    forward = target.forward(sequence.state, mx.array(ids, dtype=mx.int32), rows=rows)
    sequence.drafter.observe(sequence.drafter_state, ids, forward.features, position)
    ranking = rank_prompt(sequence, forward.logits, position) if ranked else ()
    pending = [*sequence.state.arrays, *ranking]
    if forward.features is not None:
        pending.append(forward.features)
    if last:
        _decide_first(sequence, forward.logits[-1:], pending)
    else:
        mx.eval(pending)
    return read_prompt(sequence, ranking, position, len(ids)) if ranked else ()


def _decide_first(
    sequence: Sequence, logits: mx.array, pending: list[mx.array]
) -> None:
    """Evaluate the last part of the prompt and commit the token after it."""
    prompt = sequence.request.token_ids
    sequence.anchor = mx.array(prompt[-1], dtype=mx.int32)
    nothing, last = empty_proposal(), len(prompt) - 1
    rows = constrained(sequence, logits, nothing)
    decision = decide(sequence, rows, nothing, last)
    drawn = partial(drawn_from, sequence, rows, nothing, last)
    ranking = rank_decided(sequence, logits, decision, drawn)
    mx.eval(decision, pending, *ranking)
    run = sequence.commit(read(decision, last).run)
    sequence.first = read_ranking(ranking, run)
    sequence.anchor = decision[-1]
    sequence.launched = 1
    sequence.drafter.observe(sequence.drafter_state, run, None, len(prompt))


def _progress(
    sequence: Sequence, seconds: float, logprobs: tuple[TokenLogprob, ...] = ()
) -> PrefillProgress:
    total = len(sequence.request.token_ids)
    sequence.told = max(sequence.told, min(sequence.state.length, total))
    return PrefillProgress(
        id=sequence.request.id,
        total=total,
        cached=sequence.cached,
        processed=sequence.told,
        elapsed_seconds=seconds,
        logprobs=logprobs,
    )
