# SPDX-License-Identifier: Apache-2.0
"""One request from prompt to end, with nothing beside it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from splashpy.cache.prefix import PrefixCache
from splashpy.drafting.drafter import Drafter
from splashpy.engine.lane_claim import LaneClaim, unlimited
from splashpy.engine.request import EngineEvent, GenerationRequest
from splashpy.engine.task import Means, Task
from splashpy.models.target import Target


def generate(
    request: GenerationRequest,
    target: Target,
    drafter: Drafter,
    cache: PrefixCache | None,
    *,
    cancelled: Callable[[], bool],
    claim: LaneClaim | None = None,
) -> Iterator[EngineEvent]:
    """Answer one request; the last event is ``Finished``.

    Args:
        request: what to continue.
        target: the model whose words count.
        drafter: who proposes.
        cache: state of earlier requests, taken over and given back.
        cancelled: asked between prefill chunks and between cycles.
        claim: on the memory the text takes; None where that is nobody's concern.

    Raises:
        ContextLengthError: the prompt fills the context.
        ShortageError: there is no memory to go on.
        ModelResultError: the target computed NaN.
    """
    means = Means(target, drafter, cache, claim=claim or unlimited())
    task = Task(request, means, cancelled)
    yield from task.begin()
    while not task.ended:
        yield from task.write() if task.writing else task.read()
