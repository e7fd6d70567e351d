# SPDX-License-Identifier: Apache-2.0
"""Let a target continue many texts at once.

A step of one row reads every weight for one token; a step of many rows reads them
once for all. Texts are padded on the left to one length, and finished ones leave the
batch. These are mlx-lm's own batched caches, not the engine's lanes: nothing is drafted
or taken back here. Recurrent layers mask the padding; where a layer's cache cannot be
padded, texts are continued one after the other.

Shapes: S texts, L positions, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import mlx.core as mx
from mlx_lm.models.cache import (
    ArraysCache,
    BatchKVCache,
    BatchRotatingKVCache,
    KVCache,
    RotatingKVCache,
)

from splashpy.errors import RequestCancelled
from splashpy.models.target import MlxLmTarget
from splashpy.verification.sampling import SamplingParams, score


def continue_texts(  # noqa: PLR0913 - who writes, after what, how far and how
    target: MlxLmTarget,
    prompts: Sequence[Sequence[int]],
    *,
    limit: int,
    stops: frozenset[int],
    sampling: SamplingParams,
    key: mx.array,
    cancelled: Callable[[], bool] = lambda: False,
) -> list[list[int]]:
    """Continue every prompt until a stop token or the limit.

    Args:
        target: who writes; taps on it are removed.
        prompts: token ids, at least one each.
        limit: tokens to write at most.
        stops: tokens that end a text; they are kept.
        sampling: how tokens are picked; nothing that looks back.
        key: of all draws.
        cancelled: asked before every step.

    Returns:
        The written tokens of every prompt.

    Raises:
        RequestCancelled: ``cancelled`` said so.
    """
    target.tap(())
    together = [list(prompts)] if prompts else []
    keys = [key]
    if _padded(target, [0]) is None:
        together = [[ids] for ids in prompts]
        keys = list(mx.random.split(key, max(len(prompts), 1)))
    return [
        text
        for batch, own in zip(together, keys, strict=False)
        for text in _continue_batch(
            target,
            batch,
            limit=limit,
            stops=stops,
            sampling=sampling,
            key=own,
            cancelled=cancelled,
        )
    ]


def _continue_batch(  # noqa: PLR0913 - as above
    target: MlxLmTarget,
    prompts: Sequence[Sequence[int]],
    *,
    limit: int,
    stops: frozenset[int],
    sampling: SamplingParams,
    key: mx.array,
    cancelled: Callable[[], bool],
) -> list[list[int]]:
    longest = max(map(len, prompts))
    padding = [longest - len(each) for each in prompts]
    caches = _padded(target, padding) or target.own_caches()
    tokens = mx.array(
        [[0] * pad + list(ids) for pad, ids in zip(padding, prompts, strict=True)]
    )
    written: list[list[int]] = [[] for _ in prompts]
    active = list(range(len(prompts)))
    for step in range(limit):
        if cancelled():
            raise RequestCancelled
        logits = target.read_together(tokens, caches)
        _end_padding(caches)
        picked = _pick(logits, sampling, mx.random.split(key, limit)[step])
        ids: Any = picked.tolist()
        for text, token in zip(active, ids, strict=True):
            written[text].append(token)
        staying = [row for row, token in enumerate(ids) if token not in stops]
        if not staying:
            break
        if len(staying) < len(active):
            active = [active[row] for row in staying]
            picked = picked[mx.array(staying)]
            for cache in caches:
                cache.filter(mx.array(staying))
        tokens = picked[:, None]
    return written


def _padded(target: MlxLmTarget, padding: list[int]) -> list[Any] | None:
    """Caches of texts padded on the left; None where a layer's cannot be padded."""
    caches = [_batched(cache, padding) for cache in target.own_caches()]
    return None if None in caches else caches


def _batched(cache: Any, padding: list[int]) -> Any:
    if type(cache) is KVCache:
        return BatchKVCache(padding)
    if type(cache) is RotatingKVCache and not cache.keep:
        return BatchRotatingKVCache(cache.max_size, padding)
    if type(cache) is ArraysCache:
        return ArraysCache(len(cache.cache), left_padding=padding)
    return None


def _end_padding(caches: list[Any]) -> None:
    """The prompt is read: no row of a recurrent layer's is padding any more."""
    for cache in caches:
        if isinstance(cache, ArraysCache):
            cache.finalize()


def _pick(logits: mx.array, sampling: SamplingParams, key: mx.array) -> mx.array:
    scores = score(logits, sampling)
    if sampling.greedy:
        return mx.argmax(scores, axis=-1)
    return mx.random.categorical(scores, key=key)
