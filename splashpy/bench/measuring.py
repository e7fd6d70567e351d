# SPDX-License-Identifier: Apache-2.0
"""Answer one prompt and count everything about it.

Rates follow from the durations as everywhere in splashpy: decoding is what happens
between the first token and the last.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter, thread_time

import mlx.core as mx

from splashpy.bench.session import GREEDY, Draw, Session
from splashpy.drafting.drafter import Drafter
from splashpy.engine.request import TokensCommitted
from splashpy.host.counts import SpecCounts


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One answer and what it took; for most attributes see ``Leg``.

    Attributes:
        token_ids: the answer.
        drafting: passes that drafted.
    """

    token_ids: tuple[int, ...]
    prefill_seconds: float
    decode_seconds: float
    host_seconds: float
    peak_bytes: int
    counts: SpecCounts
    kept: dict[int, int]

    @property
    def drafting(self) -> int:
        """Passes that drafted."""
        return sum(self.kept.values())


def measure(
    session: Session,
    token_ids: tuple[int, ...],
    drafter: Drafter,
    *,
    max_tokens: int,
    draw: Draw = GREEDY,
    cancelled: Callable[[], bool] = lambda: False,
) -> Measured:
    """Decode from a prompt.

    Args:
        session: a loaded model.
        token_ids: the prompt.
        drafter: who proposes.
        max_tokens: answer tokens at most.
        draw: how tokens are chosen.
        cancelled: asked between cycles.

    Raises:
        ContextLengthError: the prompt fills the context.
        ModelResultError: the target computed NaN.
    """
    answer: list[int] = []
    counts, kept = SpecCounts(), Counter[int]()
    mx.reset_peak_memory()
    started = first = last = perf_counter()
    host_first = host_last = thread_time()
    for event in session.events(
        token_ids, drafter, max_tokens=max_tokens, cancelled=cancelled, draw=draw
    ):
        if not isinstance(event, TokensCommitted):
            continue
        last, host_last = event.at, thread_time()
        if not event.cycle:
            first, host_first = last, host_last
        else:
            counts.note(
                drafted=event.drafted,
                accepted=event.accepted,
                committed=len(event.token_ids),
                by=event.by,
                cost=event.cost,
            )
            kept.update([event.accepted] * (event.drafted > 0))
        answer += event.token_ids
    return Measured(
        token_ids=tuple(answer),
        prefill_seconds=first - started,
        decode_seconds=last - first,
        host_seconds=host_last - host_first,
        peak_bytes=mx.get_peak_memory(),
        counts=counts,
        kept=dict(kept),
    )
