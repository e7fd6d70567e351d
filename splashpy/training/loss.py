# SPDX-License-Identifier: Apache-2.0
"""What a drafter is taught, and how well it does.

Two losses are added. The *base* loss is the cross entropy of every row's logits with
its label, slot k weighted by exp(-(k - 1) / gamma): a late slot only counts once all
earlier ones are right. The *selector* loss is the cross entropy of the selector's
scores over a row's C best candidates, with the true token before it as predecessor;
rows whose label is no candidate cannot teach it.

``accept_len`` counts the leading right picks of a block and the target's own token.
Up to the first wrong pick the true predecessors are also the drafted ones, so on text
the target wrote greedily it is exactly what a cycle at that anchor commits.

Shapes: as in ``blocks.py``; C candidates, M = S * N * K rows.
Source: NVIDIA-NeMo/Automodel, dflash2_core.py (Apache-2.0).
"""

from __future__ import annotations

from dataclasses import dataclass

import mlx.core as mx

from splashpy.drafting.head import DraftHead
from splashpy.kernels.top_tokens import top_tokens
from splashpy.models.dflash2 import DFlashNetwork
from splashpy.training.blocks import Batch, BlockEmbedding, run_blocks

_TINY = 1e-6  # keeps a batch without a label from dividing by zero

Sums = dict[str, tuple[mx.array, mx.array]]
"""Metric name -> (sum, count); sums and counts of several batches add up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Objective:
    """How the losses are weighted.

    Attributes:
        gamma: decay of the slots' weights; None weighs all alike.
        selector_weight: factor of the selector loss.
        distillation: share of the target's own distribution in the labels of the base
            loss; 0 takes the written tokens alone.
    """

    gamma: float | None = 4.0
    selector_weight: float = 1.0
    distillation: float = 0.0


@dataclass(frozen=True, slots=True)
class Judged:
    """Every row of a batch, judged; all [S, N, K] float32.

    Attributes:
        loss: cross entropy of the logits with the label.
        taught: 1 where the base loss counts.
        base_right: 1 where the largest logit is the label's.
        selector_loss: cross entropy of the selector's scores; 0 without a hit.
        hit: 1 where the label is a candidate.
        right: 1 where the selector picks the label.
    """

    loss: mx.array
    taught: mx.array
    base_right: mx.array
    selector_loss: mx.array
    hit: mx.array
    right: mx.array


def judge(
    network: DFlashNetwork,
    embed: BlockEmbedding,
    head: DraftHead,
    batch: Batch,
    distillation: float = 0.0,
) -> Judged:
    """Run a batch's blocks and compare every row with its label."""
    shape = batch.labels.shape
    hidden = run_blocks(
        network, embed(batch.anchor_ids.flatten()), batch.features, batch.anchors
    )[:, 1:].reshape(-1, network.config.hidden_size)
    logits = network.transform(head(hidden))
    rows = head.row_of(batch.labels.flatten())
    known = rows >= 0
    label_logits = _at(logits, mx.maximum(rows, 0)[:, None])[:, 0]
    total = mx.logsumexp(logits, axis=-1)
    expected = label_logits
    if distillation:
        soft = _expected_logit(logits, head, batch, label_logits)
        expected = (1 - distillation) * label_logits + distillation * soft
    best = mx.argmax(mx.stop_gradient(logits), axis=-1)
    base_right = (best == rows).astype(mx.float32)
    if network.config.version == 2:
        picked = _judge_selector(network, head, hidden, logits, batch)
    else:
        picked = (mx.zeros_like(total), base_right, base_right)
    selector_loss, hit, right = picked
    judged = (
        (total - expected) * known,
        known.astype(mx.float32),
        base_right,
        selector_loss,
        hit,
        right,
    )
    return Judged(*(each.reshape(shape) for each in judged))


def combine(
    judged: Judged, supervised: mx.array, objective: Objective
) -> tuple[mx.array, Sums]:
    """The loss of a batch and its metrics.

    Args:
        judged: its rows.
        supervised: [S, N, K] float32, which of them count.
        objective: how they are weighted.
    """
    slots = mx.arange(supervised.shape[-1])
    decay = mx.exp(-slots / objective.gamma) if objective.gamma else mx.ones(slots.size)
    weights = supervised * judged.taught * decay
    base = (weights * judged.loss).sum() / (weights.sum() + _TINY)
    weights = supervised * judged.hit * decay
    selector = (weights * judged.selector_loss).sum() / (weights.sum() + _TINY)
    loss = base + objective.selector_weight * selector
    return loss, {
        "loss": (loss, mx.array(1.0)),
        "base_loss": (base, mx.array(1.0)),
        "selector_loss": (selector, mx.array(1.0)),
        **_quality(judged, supervised),
    }


def accepted(judged: Judged, supervised: mx.array) -> mx.array:
    """Leading right picks of every block, [S, N] int32."""
    return _run(judged.right, supervised).astype(mx.int32)


def _quality(judged: Judged, supervised: mx.array) -> Sums:
    count = supervised.sum()
    blocks = supervised.max(axis=-1)
    # Once: mx.compile fails on two outputs that are computed alike.
    block_count = blocks.sum()
    lengths = {
        "accept_len": _run(judged.right, supervised),
        "base_accept_len": _run(judged.base_right, supervised),
    }
    rates = {
        "accuracy": judged.right,
        "base_accuracy": judged.base_right,
        "candidate_recall": judged.hit,
    }
    return {
        **{n: ((blocks * (r + 1)).sum(), block_count) for n, r in lengths.items()},
        **{n: ((supervised * rate).sum(), count) for n, rate in rates.items()},
    }


def _run(right: mx.array, supervised: mx.array) -> mx.array:
    return mx.cumprod(right * supervised, axis=-1).sum(axis=-1)


def _judge_selector(
    network: DFlashNetwork,
    head: DraftHead,
    hidden: mx.array,
    logits: mx.array,
    batch: Batch,
) -> tuple[mx.array, mx.array, mx.array]:
    """Loss, hit and right pick of every row, [M] float32 each."""
    selector = network.candidate_selector
    count = min(network.config.selector_top_k, head.rows)
    places, _ = top_tokens(mx.stop_gradient(logits), count)
    candidates = head.id_of(places)
    before = selector.predecessor_codebook[batch.predecessors.flatten()]
    gate = before.astype(mx.float32) * selector.hidden_projection(hidden)
    after = selector.successor_codebook[candidates].astype(mx.float32)
    scores = _at(logits, places) + (after @ gate[..., None])[..., 0]
    found = candidates == batch.labels.flatten()[:, None]
    hit = found.any(axis=-1).astype(mx.float32)
    label_score = mx.where(found, scores, 0.0).sum(axis=-1)
    loss = (mx.logsumexp(scores, axis=-1) - label_score) * hit
    pick = mx.argmax(mx.stop_gradient(scores), axis=-1)
    return loss, hit, hit * (pick == mx.argmax(found, axis=-1))


def _expected_logit(
    logits: mx.array, head: DraftHead, batch: Batch, label_logits: mx.array
) -> mx.array:
    """The mean logit under the target's distribution, over tokens of the head, [M].

    Where the head has a row for none of them, it is the label's own logit.
    """
    width = batch.soft_ids.shape[-1]
    rows = head.row_of(batch.soft_ids.reshape(-1, width))
    probs = batch.soft_probs.reshape(-1, width) * (rows >= 0)
    total = probs.sum(axis=-1)
    found = (probs * _at(logits, mx.maximum(rows, 0))).sum(axis=-1)
    return found / mx.maximum(total, _TINY) * (total > 0) + label_logits * (total <= 0)


def _at(values: mx.array, places: mx.array) -> mx.array:
    return mx.take_along_axis(values, places, axis=-1)
