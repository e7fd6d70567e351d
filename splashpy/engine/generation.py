# SPDX-License-Identifier: Apache-2.0
"""One request from prompt to end, with nothing beside it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from splashpy.cache.prefix import PrefixCache
from splashpy.drafting.drafter import Drafter
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
) -> Iterator[EngineEvent]:
    """Answer one request; the last event is ``Finished``.

    Args:
        request: what to continue.
        target: the model whose words count.
        drafter: who proposes.
        cache: state of earlier requests, taken over and given back.
        cancelled: asked between prefill chunks and between cycles.

    Raises:
        ContextLengthError: the prompt fills the context.
        ModelResultError: the target computed NaN.
    """
    task = Task(request, Means(target, drafter, cache), cancelled)
    yield from task.begin()
    while not task.ended:
        yield from task.write() if task.writing else task.read()
