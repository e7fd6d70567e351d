# SPDX-License-Identifier: Apache-2.0
"""Read the residual stream after chosen layers, without touching the model.

Each tapped layer *instance* gets a throw-away subclass of its own class whose call
keeps the output in a sink. Weights, parameter paths, the class and every other model
in the process stay as they are; removing the tap restores the class.

Layer numbers count from 0 and mean the stream after that layer, before the final
norm. Where a family keeps several streams, the feature is their mean.

Captured arrays are lazy: a tap nobody reads costs nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import mlx.core as mx
import mlx.nn as nn


class Taps:
    """Taps on some layers of one model.

    Args:
        layers: the model's decoder layers, in order.
        layer_ids: layers to tap, in the order the drafter wants their outputs.

    Raises:
        ValueError: a layer id lies outside the model.
    """

    def __init__(self, layers: Sequence[nn.Module], layer_ids: Sequence[int]):
        outside = [i for i in layer_ids if not 0 <= i < len(layers)]
        if outside:
            raise ValueError(f"layers {outside} are not among 0..{len(layers) - 1}")
        self.layer_ids = tuple(layer_ids)
        self._sink: dict[int, mx.array] = {}
        self._tapped: list[nn.Module] = []
        for layer_id in self.layer_ids:
            layer = layers[layer_id]
            layer.__class__ = _tapped_class(type(layer), layer_id, self._sink)
            self._tapped.append(layer)

    def take(self) -> mx.array:
        """The features of the last forward, and forget them.

        Returns:
            [L, F * D], the tapped outputs side by side in the given order.
        """
        rows = [self._sink[layer_id][0] for layer_id in self.layer_ids]
        self._sink.clear()
        return mx.concatenate(rows, axis=-1)

    def take_each(self, texts: int) -> list[mx.array]:
        """As :meth:`take`, of a forward that read several texts: one for each."""
        rows = mx.concatenate([self._sink[i] for i in self.layer_ids], axis=-1)
        self._sink.clear()
        return [rows[text] for text in range(texts)]

    def drop(self) -> None:
        """Forget captured outputs, so their graph can be freed."""
        self._sink.clear()

    def remove(self) -> None:
        """Give every layer its own class back."""
        for layer in self._tapped:
            layer.__class__ = type(layer).__mro__[1]
        self._tapped.clear()
        self._sink.clear()


def _tapped_class(
    parent: type[nn.Module], layer_id: int, sink: dict[int, mx.array]
) -> type[nn.Module]:
    def call(self: nn.Module, *args: Any, **kwargs: Any) -> Any:
        out = parent.__call__(self, *args, **kwargs)
        # Some families return (hidden, ...): the stream comes first.
        hidden = out[0] if isinstance(out, tuple) else out
        # Several streams are [1, L, streams, D].
        sink[layer_id] = hidden.mean(axis=-2) if hidden.ndim == 4 else hidden
        return out

    return type(f"Tapped{parent.__name__}", (parent,), {"__call__": call})
