# SPDX-License-Identifier: Apache-2.0
"""Let a target continue many texts at once.

A step of one row reads every weight for one token; a step of many rows reads them
once for all. Texts are padded on the left to one length, and finished ones leave the
batch. This is mlx-lm's own batched cache, not the engine's: nothing is drafted or
taken back here.

Shapes: S texts, L positions, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import mlx.core as mx
from mlx_lm.models.cache import BatchKVCache

from splashpy.errors import RequestCancelled
from splashpy.models.target import MlxLmTarget, find_backbone
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
    if not prompts:
        return []
    target.tap(())
    backbone = find_backbone(target._model)
    longest = max(map(len, prompts))
    padding = [longest - len(each) for each in prompts]
    lanes: list[Any] = [BatchKVCache(padding) for _ in backbone.layers]
    tokens = mx.array(
        [[0] * pad + list(ids) for pad, ids in zip(padding, prompts, strict=True)]
    )
    written: list[list[int]] = [[] for _ in prompts]
    active = list(range(len(prompts)))
    for step in range(limit):
        if cancelled():
            raise RequestCancelled
        logits = target.head(backbone(tokens, cache=lanes)[:, -1]).astype(mx.float32)
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
            for lane in lanes:
                lane.filter(mx.array(staying))
        tokens = picked[:, None]
    return written


def _pick(logits: mx.array, sampling: SamplingParams, key: mx.array) -> mx.array:
    scores = score(logits, sampling)
    if sampling.greedy:
        return mx.argmax(scores, axis=-1)
    return mx.random.categorical(scores, key=key)
