# SPDX-License-Identifier: Apache-2.0
"""What the target knows about a text: its features, and the tokens it expects.

A lesson is computed by one pass over the text, or read from the disk where an earlier
pass left it. Features are many times as large as the text, so a budget decides how
many are kept. They are rounded as they are stored whether or not they are: a run does
not depend on what happens to be on the disk.

Shapes: L positions, F feature layers, D channels, T likely tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import mlx.core as mx

from splashpy.errors import IntegrityError
from splashpy.kernels.top_tokens import top_tokens
from splashpy.models.target import Target
from splashpy.package.integrity import check_safetensors
from splashpy.training.examples import Example
from splashpy.training.files import save_atomic

STORED = mx.bfloat16
"""What features are kept as: the range of a residual stream in half its bytes."""


@dataclass(frozen=True, slots=True)
class Lesson:
    """One text as a drafter learns from it.

    Attributes:
        example: the text.
        features: [L, F * D] of every position.
        likely_ids: [L, T] int32; row t are the tokens the target expects at t + 1,
            the best first; zeros before the answer. T is 0 when they were not asked
            for.
        likely_probs: [L, T] float32, their probabilities; a row's sum is 1.
    """

    example: Example
    features: mx.array
    likely_ids: mx.array
    likely_probs: mx.array


class Lessons:
    """Computes lessons and keeps them.

    Args:
        target: the model that wrote the texts.
        feature_layers: layers a drafter reads, in order.
        likely: T, how many expected tokens to keep.
        directory: where lessons are kept; None keeps none.
        budget: bytes they may take there.
        dtype: what features are rounded to.

    Attributes:
        feature_layers, likely: as given.
    """

    def __init__(
        self,
        target: Target,
        feature_layers: Sequence[int],
        *,
        likely: int = 0,
        directory: Path | None = None,
        budget: int = 0,
        dtype: mx.Dtype = STORED,
    ):
        self._target = target
        self.feature_layers = tuple(feature_layers)
        self.likely = likely
        self._directory = directory
        self._left = budget
        self._dtype = dtype
        if directory is not None:
            directory.mkdir(parents=True, exist_ok=True)
            self._left -= sum(each.stat().st_size for each in directory.iterdir())

    def of(self, example: Example) -> Lesson:
        """The lesson of one text."""
        path = self._path(example)
        arrays = _kept(path) if path is not None and path.exists() else None
        if arrays is None:
            arrays = self._compute(example)
            self._keep(path, arrays)
        return Lesson(
            example, arrays["features"], arrays["likely_ids"], arrays["likely_probs"]
        )

    def _compute(self, example: Example) -> dict[str, mx.array]:
        length = len(example.token_ids)
        # The head is needed where the answer's tokens are expected.
        rows = length - example.start + 1 if self.likely else 0
        self._target.tap(self.feature_layers)
        forward = self._target.forward(
            self._target.new_state(length), mx.array(example.token_ids), rows=rows
        )
        assert forward.features is not None  # the layers are tapped
        ids, probs = mx.zeros((rows, 0), mx.int32), mx.zeros((rows, 0))
        if self.likely:
            ids, logits = top_tokens(forward.logits, self.likely)
            probs = mx.softmax(logits, axis=-1)
        before = [(length - rows, 0), (0, 0)]
        arrays = {
            "features": forward.features.astype(self._dtype),
            "likely_ids": mx.pad(ids, before),
            "likely_probs": mx.pad(probs, before),
        }
        mx.eval(arrays)
        return arrays

    def _keep(self, path: Path | None, arrays: dict[str, mx.array]) -> None:
        size = sum(array.nbytes for array in arrays.values())
        if path is not None and size <= self._left:
            save_atomic(path, arrays)
            self._left -= path.stat().st_size

    def _path(self, example: Example) -> Path | None:
        if self._directory is None:
            return None
        layers = "-".join(map(str, self.feature_layers))
        return self._directory / f"{example.digest}-{layers}-{self.likely}.safetensors"


def _kept(path: Path) -> dict[str, mx.array] | None:
    """The lesson in a file; None when it is damaged, as after a power cut."""
    try:
        check_safetensors(path)
        arrays = mx.load(str(path))
    except (IntegrityError, RuntimeError):
        return None
    assert isinstance(arrays, dict)  # what mlx gives for a safetensors file
    return arrays
