# SPDX-License-Identifier: Apache-2.0
"""From texts to batches of blocks, the same for the same number every time.

Texts are taken in a new order in every epoch; in each of them anchors are drawn
without replacement from the answer's tokens. A block may reach beyond the end of its
text, as it may while decoding; the rows there are not supervised.

Shapes: as in ``blocks.py``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import mlx.core as mx
import numpy as np

from splashpy.training.blocks import Batch
from splashpy.training.examples import Example
from splashpy.training.lessons import Lesson, Lessons
from splashpy.training.random_keys import Stream, key_of

# Lengths are rounded up: a compiled step is traced once per shape.
_LENGTH_STEP = 64


class Batches:
    """The batches of a training run.

    Args:
        examples: texts with at least two answer tokens; others are left out.
        lessons: where their features come from.
        block_size: B.
        sequences: S, texts in a batch.
        anchors: N, blocks of a text.
        seed: of order and anchors.

    Attributes:
        examples: the texts used.
    """

    def __init__(
        self,
        examples: Sequence[Example],
        lessons: Lessons,
        block_size: int,
        *,
        sequences: int,
        anchors: int,
        seed: int,
    ):
        self.examples = [each for each in examples if candidates(each)]
        self._lessons = lessons
        self._block_size = block_size
        self._sequences = sequences
        self._anchors = anchors
        self._seed = seed
        self._order: tuple[int, list[int]] = (-1, [])

    def __getitem__(self, index: int) -> Batch:
        """The batch of this number; any number from 0 on."""
        first = index * self._sequences
        places = range(first, first + self._sequences)
        chosen = [self._example(place) for place in places]
        anchors = [
            self._draw(each, place) for each, place in zip(chosen, places, strict=True)
        ]
        return make_batch(
            [self._lessons.of(each) for each in chosen],
            anchors,
            self._block_size,
            width=self._anchors,
        )

    def _example(self, place: int) -> Example:
        epoch, at = divmod(place, len(self.examples))
        if self._order[0] != epoch:
            key = key_of(self._seed, Stream.ORDER, epoch)
            order: Any = mx.random.permutation(len(self.examples), key=key).tolist()
            self._order = (epoch, order)
        return self.examples[self._order[1][at]]

    def _draw(self, example: Example, place: int) -> list[int]:
        possible = candidates(example)
        key = key_of(self._seed, Stream.ANCHORS, place)
        order: Any = mx.random.permutation(len(possible), key=key).tolist()
        return sorted(possible[at] for at in order[: self._anchors])


def candidates(example: Example) -> range:
    """Where a block may begin: at answer tokens that another one follows."""
    return range(example.start, len(example.token_ids) - 1)


def padded(length: int) -> int:
    """Positions of a batch whose longest text has this many tokens."""
    return length + -length % _LENGTH_STEP


def make_batch(
    lessons: Sequence[Lesson],
    anchors: Sequence[Sequence[int]],
    block_size: int,
    *,
    width: int,
) -> Batch:
    """Blocks at given anchors.

    Args:
        lessons: S texts.
        anchors: per text the positions of its blocks, at most ``width``.
        block_size: B.
        width: N; missing blocks are added without supervision.
    """
    drafted = block_size - 1
    length = padded(max(len(each.example.token_ids) for each in lessons))
    likely = max(lessons[0].likely_ids.shape[1], 1)
    shape = (len(lessons), width)
    places = np.zeros(shape, np.int32)
    ids = np.zeros(shape, np.int32)
    labels = np.zeros((*shape, drafted), np.int32)
    supervised = np.zeros((*shape, drafted), np.float32)
    soft_ids = np.zeros((*shape, drafted, likely), np.int32)
    soft_probs = np.zeros((*shape, drafted, likely), np.float32)
    for row, (lesson, chosen) in enumerate(zip(lessons, anchors, strict=True)):
        tokens = np.array(lesson.example.token_ids, np.int32)
        at = np.array(chosen, np.int32)
        count = len(at)
        wanted = at[:, None] + np.arange(1, block_size)
        inside = wanted < len(tokens)
        wanted = np.minimum(wanted, len(tokens) - 1)
        places[row, :count], ids[row, :count] = at, tokens[at]
        labels[row, :count], supervised[row, :count] = tokens[wanted], inside
        if lesson.likely_ids.shape[1]:
            # Row t of the target's output is its opinion of position t + 1.
            soft_ids[row, :count] = np.array(lesson.likely_ids)[wanted - 1]
            soft_probs[row, :count] = np.array(lesson.likely_probs)[wanted - 1]
        else:
            soft_ids[row, :count, :, 0] = tokens[wanted]
            soft_probs[row, :count, :, 0] = 1.0
    features = mx.stack(
        [
            mx.pad(each.features, [(0, length - each.features.shape[0]), (0, 0)])
            for each in lessons
        ]
    )
    return Batch(
        features,
        *map(mx.array, (places, ids, labels, supervised, soft_ids, soft_probs)),
    )
