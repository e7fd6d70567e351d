# SPDX-License-Identifier: Apache-2.0
"""Losses and metrics against a plain numpy reading of their definitions."""

from __future__ import annotations

import mlx.core as mx
import numpy as np
import pytest
import tiny

from splashpy.drafting.head import DraftHead
from splashpy.models.dflash2 import DFlashNetwork
from splashpy.models.target import MlxLmTarget
from splashpy.training.batches import make_batch
from splashpy.training.blocks import Batch, BlockEmbedding, run_blocks
from splashpy.training.examples import Example
from splashpy.training.head import frequent_tokens
from splashpy.training.lessons import Lesson
from splashpy.training.loss import Judged, Objective, accepted, combine, judge


@pytest.fixture
def batch() -> Batch:
    keys = mx.random.split(mx.random.key(2), 4)
    ids = mx.random.randint(0, 256, (40,), key=keys[0]).tolist()
    lesson = Lesson(
        Example(tuple(ids), 1, ""),
        mx.random.normal((40, 128), key=keys[1]),
        mx.random.randint(0, 260, (40, 3), key=keys[2]),
        mx.softmax(mx.random.normal((40, 3), key=keys[3]), axis=-1),
    )
    return make_batch([lesson], [[4, 9, 36]], 8, width=4)


def rows_of(
    network: DFlashNetwork, target: MlxLmTarget, batch: Batch
) -> tuple[np.ndarray, np.ndarray]:
    embed = BlockEmbedding(network, target)(batch.anchor_ids.flatten())
    hidden = run_blocks(network, embed, batch.features, batch.anchors)[:, 1:]
    hidden = hidden.reshape(-1, 64)
    logits = network.transform(target.head(hidden))
    return np.array(hidden, np.float64), np.array(logits, np.float64)


def log_softmax(x: np.ndarray) -> np.ndarray:
    x = x - x.max()
    return x - np.log(np.exp(x).sum())


def test_every_row_is_judged_as_defined(target: MlxLmTarget, batch: Batch) -> None:
    network = tiny.drafter_network()
    hidden, logits = rows_of(network, target, batch)
    # Half of the labels become the row's second candidate, or there were few hits.
    second = mx.array(np.argsort(-logits)[:, 1]).reshape(batch.labels.shape)
    odd = mx.arange(batch.labels.size).reshape(batch.labels.shape) % 2 == 1
    batch = batch._replace(labels=mx.where(odd, second, batch.labels).astype(mx.int32))
    judged = judge(
        network, BlockEmbedding(network, target), DraftHead(target, 260), batch
    )
    selector = network.candidate_selector
    before = np.array(selector.predecessor_codebook, np.float64)
    after = np.array(selector.successor_codebook, np.float64)
    gate = hidden @ np.array(selector.hidden_projection.weight, np.float64).T

    labels = np.array(batch.labels).ravel()
    predecessors = np.array(batch.predecessors).ravel()
    hits = 0
    for row, label in enumerate(labels):
        slot = np.unravel_index(row, batch.labels.shape)
        expected = -log_softmax(logits[row])[label]
        # float32 sums over 64 channels and 260 tokens against float64
        np.testing.assert_allclose(judged.loss[slot].item(), expected, rtol=1e-4)
        candidates = np.argsort(-logits[row], kind="stable")[:6]
        pairs = (before[predecessors[row]] * gate[row]) @ after[candidates].T
        scores = logits[row][candidates] + pairs
        hit = label in candidates
        hits += hit
        assert judged.hit[slot].item() == hit
        assert judged.right[slot].item() == (candidates[scores.argmax()] == label)
        if hit:
            expected = -log_softmax(scores)[list(candidates).index(label)]
            np.testing.assert_allclose(
                judged.selector_loss[slot].item(), expected, rtol=1e-3, atol=1e-5
            )
    assert hits >= 14


def made_up(right: list[list[float]], hit: list[list[float]]) -> Judged:
    shape = (1, len(right), len(right[0]))
    loss = mx.arange(1.0, 1 + shape[1] * shape[2]).reshape(shape)
    return Judged(
        loss=loss,
        taught=mx.ones(shape),
        base_right=mx.array([right]),
        selector_loss=10 * loss,
        hit=mx.array([hit]),
        right=mx.array([right]),
    )


def test_losses_decay_by_slot_and_metrics_count_supervised_rows_only() -> None:
    judged = made_up([[1.0, 1.0, 1.0], [0.0, 1.0, 1.0]], [[1.0, 1.0, 0.0]] * 2)
    supervised = mx.array([[[1.0, 1.0, 0.0], [1.0, 1.0, 1.0]]])
    objective = Objective(gamma=2.0, selector_weight=0.5)
    loss, sums = combine(judged, supervised, objective)

    w = np.exp(-np.arange(3) / 2)
    base = (w[0] * (1 + 4) + w[1] * (2 + 5) + w[2] * 6) / (2 * w[0] + 2 * w[1] + w[2])
    selector = 10 * (w[0] * (1 + 4) + w[1] * (2 + 5)) / (2 * w[0] + 2 * w[1])
    np.testing.assert_allclose(loss.item(), base + 0.5 * selector, rtol=1e-5)

    means = {name: (total / count).item() for name, (total, count) in sums.items()}
    # Blocks commit 2 drafts and 0, and a token of the target's own each.
    assert means["accept_len"] == pytest.approx((3 + 1) / 2)
    assert means["accuracy"] == pytest.approx(4 / 5)
    assert means["candidate_recall"] == pytest.approx(4 / 5)
    assert accepted(judged, supervised).tolist() == [[2, 0]]


def test_a_block_without_labels_counts_nowhere() -> None:
    judged = made_up([[1.0, 1.0, 1.0], [1.0, 1.0, 1.0]], [[1.0] * 3] * 2)
    supervised = mx.array([[[1.0, 1.0, 1.0], [0.0, 0.0, 0.0]]])
    _, sums = combine(judged, supervised, Objective())
    total, count = sums["accept_len"]
    assert (total.item(), count.item()) == (4.0, 1.0)


def test_a_restricted_head_has_the_whole_heads_logits(target: MlxLmTarget) -> None:
    tokens = [3, 250, 17, 99]
    head = DraftHead(target, 260, tokens)
    hidden = mx.random.normal((5, 64), key=mx.random.key(0))
    whole = DraftHead(target, 260)(hidden)
    np.testing.assert_allclose(head(hidden), whole[:, mx.array(sorted(tokens))], 1e-5)
    assert head.row_of(mx.array([17, 18])).tolist() == [1, -1]
    assert head.id_of(mx.array([0, 3])).tolist() == [3, 250]


def test_a_head_of_all_tokens_judges_like_the_whole_one(
    target: MlxLmTarget, batch: Batch
) -> None:
    network = tiny.drafter_network()
    embed = BlockEmbedding(network, target)
    whole = judge(network, embed, DraftHead(target, 260), batch, 0.5)
    same = judge(network, embed, DraftHead(target, 260, range(260)), batch, 0.5)
    np.testing.assert_allclose(same.loss, whole.loss, rtol=1e-4, atol=1e-5)
    assert mx.array_equal(same.right, whole.right)


def test_a_label_outside_the_head_teaches_nothing_and_is_a_miss(
    target: MlxLmTarget, batch: Batch
) -> None:
    network = tiny.drafter_network()
    label = batch.labels[0, 0, 0].item()
    head = DraftHead(target, 260, [each for each in range(260) if each != label])
    judged = judge(network, BlockEmbedding(network, target), head, batch)
    first = [getattr(judged, n)[0, 0, 0].item() for n in ("taught", "hit", "right")]
    assert first == [0.0, 0.0, 0.0]
    assert judged.loss[0, 0, 0].item() == 0.0


def test_distillation_takes_the_targets_distribution_as_the_label(
    target: MlxLmTarget, batch: Batch
) -> None:
    network = tiny.drafter_network()
    head = DraftHead(target, 260)
    judged = judge(network, BlockEmbedding(network, target), head, batch, 1.0)
    _, logits = rows_of(network, target, batch)
    for row in range(21):
        slot = np.unravel_index(row, batch.labels.shape)
        ids, probs = np.array(batch.soft_ids[slot]), np.array(batch.soft_probs[slot])
        expected = -(probs * log_softmax(logits[row])[ids]).sum()
        np.testing.assert_allclose(judged.loss[slot].item(), expected, rtol=1e-4)


def test_frequent_tokens_are_counted_and_ties_go_to_the_lower_id() -> None:
    assert frequent_tokens([[5, 5, 9, 2], [9, 7]], 3) == [2, 5, 9]


def test_a_label_the_target_did_not_expect_is_no_lower_loss(
    target: MlxLmTarget, batch: Batch
) -> None:
    """The head knows the label, and none of the tokens the target held likely."""
    network = tiny.drafter_network()
    expected = set(np.array(batch.soft_ids).ravel().tolist())
    labels = set(np.array(batch.labels).ravel().tolist())
    head = DraftHead(target, 260, sorted(labels - expected))
    embed = BlockEmbedding(network, target)

    alone = judge(network, embed, head, batch)
    taught = judge(network, embed, head, batch, 1.0)

    assert alone.taught.sum().item() > 0
    assert mx.allclose(taught.loss, alone.loss, atol=1e-5)
