# SPDX-License-Identifier: Apache-2.0
"""A block in training is a block while drafting: same context, positions, rows."""

from __future__ import annotations

from collections.abc import Callable

import mlx.core as mx
import mlx.nn as nn
import numpy as np
import pytest
import tiny
from mlx.utils import tree_flatten, tree_map

from splashpy.drafting.dflash2 import DFlash2Drafter
from splashpy.drafting.drafter import DraftSampling
from splashpy.drafting.head import DraftHead
from splashpy.models.dflash2 import DFlashNetwork
from splashpy.models.target import MlxLmTarget
from splashpy.training.batches import make_batch
from splashpy.training.blocks import BlockEmbedding, run_blocks
from splashpy.training.evaluate import accepted_at_every_anchor, estimate_cycles
from splashpy.training.examples import Example
from splashpy.training.lessons import Lesson, Lessons
from splashpy.training.loss import Objective, combine, judge

# Two attention formulas and two orders of summation over at most 60 float32 terms.
CLOSE = {"rtol": 1e-4, "atol": 1e-5}

KINDS = [
    pytest.param({}, id="windows and full layers, causal where sliding"),
    pytest.param({"is_causal": False}, id="blocks that see themselves whole"),
    pytest.param({"is_causal": True}, id="causal blocks"),
    pytest.param(
        {"layer_types": ["full_attention"] * 2, "sliding_window": None}, id="full"
    ),
]


def random_lesson(length: int, seed: int = 0) -> Lesson:
    keys = mx.random.split(mx.random.key(seed), 2)
    ids = mx.random.randint(0, 256, (length,), key=keys[0]).tolist()
    features = mx.random.normal((length, 128), key=keys[1])
    none = mx.zeros((length, 0))
    return Lesson(Example(tuple(ids), 1, ""), features, none.astype(mx.int32), none)


def drafted_rows(
    network: DFlashNetwork, target: MlxLmTarget, lesson: Lesson, anchor: int
) -> mx.array:
    """The hidden rows the drafter's own forward gives."""
    context = network.new_context()
    network.extend(context, lesson.features[:anchor])
    block = [lesson.example.token_ids[anchor]] + [network.config.mask_token_id] * 7
    return network(target.embed(mx.array(block)), context)


@pytest.mark.parametrize("changes", KINDS)
def test_every_block_of_a_batch_equals_the_drafters_own_forward(
    target: MlxLmTarget, changes: dict
) -> None:
    network = tiny.drafter_network(**changes)
    lessons = [random_lesson(50), random_lesson(37, seed=1)]
    anchors = [[1, 2, 11, 12, 13, 48], [5, 20, 35]]
    batch = make_batch(lessons, anchors, 8, width=6)

    embeddings = BlockEmbedding(network, target)(batch.anchor_ids.flatten())
    hidden = run_blocks(network, embeddings, batch.features, batch.anchors)
    hidden = hidden.reshape(2, 6, 8, -1)

    for row, (lesson, places) in enumerate(zip(lessons, anchors, strict=True)):
        for column, anchor in enumerate(places):
            expected = drafted_rows(network, target, lesson, anchor)
            np.testing.assert_allclose(hidden[row, column], expected, **CLOSE)


def test_neither_the_anchors_own_features_nor_later_ones_reach_a_block(
    network: DFlashNetwork, target: MlxLmTarget
) -> None:
    lesson = random_lesson(40)
    batch = make_batch([lesson], [[20]], 8, width=1)
    embeddings = BlockEmbedding(network, target)(batch.anchor_ids.flatten())

    def hidden(features: mx.array) -> mx.array:
        return run_blocks(network, embeddings, features, batch.anchors)

    before = hidden(batch.features)
    spoiled = mx.array(batch.features)
    spoiled[:, 20:] = 100.0
    assert mx.array_equal(hidden(spoiled), before)
    spoiled[:, 19] = 100.0
    assert not mx.allclose(hidden(spoiled), before, atol=1e-2)


def test_labels_are_the_tokens_after_the_anchor_and_end_with_the_text() -> None:
    lesson = random_lesson(20)
    tokens = lesson.example.token_ids
    batch = make_batch([lesson], [[3, 17]], 8, width=3)

    assert batch.anchors.tolist() == [[3, 17, 0]]
    assert batch.anchor_ids.tolist() == [[tokens[3], tokens[17], 0]]
    assert batch.labels[0, 0].tolist() == list(tokens[4:11])
    assert batch.labels[0, 1, :2].tolist() == list(tokens[18:20])
    assert batch.predecessors[0, 0].tolist() == list(tokens[3:10])
    assert batch.supervised[0].tolist() == [[1.0] * 7, [1.0] * 2 + [0.0] * 5, [0.0] * 7]


def test_the_targets_opinion_stands_where_its_label_stands(
    target: MlxLmTarget, write_texts: Callable[..., list[Example]]
) -> None:
    [example] = write_texts(target, 1)
    lesson = Lessons(target, (0, 2), likely=3).of(example)
    batch = make_batch([lesson], [[10, 20]], 8, width=2)
    # The text is greedy: the best token of every row is the label itself.
    assert mx.array_equal(batch.soft_ids[..., 0], batch.labels)


def test_a_text_that_follows_the_drafter_is_accepted_exactly_as_far(
    network: DFlashNetwork, target: MlxLmTarget
) -> None:
    drafter = DFlash2Drafter(network, target)
    lessons = Lessons(target, drafter.feature_layers)
    tokens, start = [5, 6, 7, 8], 3
    kept: dict[int, int] = {}
    for count in (3, 0, 7, 1, 5, 2):
        anchor = len(tokens) - 1
        features = lessons.of(Example(tuple(tokens), start, "")).features
        state = drafter.new_state()
        drafter.observe(state, (), features[:anchor], 0)
        drafts = drafter.propose(
            state, mx.array(tokens[anchor]), 7, DraftSampling()
        ).token_ids.tolist()
        wrong = (drafts[count] + 1) % 256 if count < 7 else 0
        tokens += [*drafts[:count], wrong]
        kept[anchor] = count

    example = Example(tuple(tokens), start, "")
    counts = accepted_at_every_anchor(network, target, example)
    assert {anchor: counts[anchor - start] for anchor in kept} == kept
    assert estimate_cycles(network, target, example) == len(kept)


def test_gradients_reach_every_weight(
    network: DFlashNetwork, target: MlxLmTarget
) -> None:
    batch = make_batch([random_lesson(40)], [[5, 9, 20, 30]], 8, width=4)
    embed, head = BlockEmbedding(network, target), DraftHead(target, 260)

    def loss() -> mx.array:
        judged = judge(network, embed, head, batch)
        return combine(judged, batch.supervised, Objective())[0]

    _, gradient = nn.value_and_grad(network, loss)()
    silent = [
        name
        for name, size in tree_flatten(
            tree_map(lambda g: mx.abs(g).max().item(), gradient)
        )
        if not size > 0
    ]
    assert silent == []
