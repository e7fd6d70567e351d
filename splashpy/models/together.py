# SPDX-License-Identifier: Apache-2.0
"""Let a model's layers read several texts in one pass.

The matrices of a layer are read once for the rows of all texts. What a text remembers
is touched text by text, with the very arrays a pass of its own would use: no text is
padded to the length of another, and lanes never move. So a text comes out as it does
alone, bit for bit where a product's rows do not depend on their number.

Attention that only hands its rows to the function mlx-lm calls shares its projections,
and that function runs once for every text. Any other layer with a memory runs whole for
every text (``apart``). Gated DeltaNets read their states side by side.

As in ``row_layers.py``, single modules get throw-away subclasses of their own class;
a pass of one text goes through them unchanged.

Shapes: B texts, H key/value heads, L rows of each text in this pass, d head dimension.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import mlx.core as mx
import mlx.nn as nn

from splashpy.models.attending import Attention, attends, with_attention
from splashpy.models.attention_lanes import LaneList, Mask
from splashpy.models.recurrent_lane import LaneRecurrent


class Each(tuple[Any, ...]):
    """Something for every text, in their order."""

    __slots__ = ()


class TextLanes:
    """The lanes of one layer, one for each text, where a layer expects one cache.

    Args:
        lanes: of one kind.
    """

    lengths = None
    left_padding = None

    def __init__(self, lanes: Sequence[Any]):
        self.lanes = Each(lanes)

    @property
    def offset(self) -> mx.array:
        """[B] int32: rows read of every text."""
        return mx.array([lane.offset for lane in self.lanes], dtype=mx.int32)

    def update_and_fetch(self, keys: mx.array, values: mx.array) -> tuple[Each, Each]:
        """Append rows to every text.

        Args:
            keys: [B, H, L, d].
            values: [B, H, L, d].

        Returns:
            Keys and values of every text, [1, H, rows, d] each.
        """
        fetched = [
            lane.update_and_fetch(keys[i : i + 1], values[i : i + 1])
            for i, lane in enumerate(self.lanes)
        ]
        return Each(k for k, _ in fetched), Each(v for _, v in fetched)

    def make_mask(self, rows: int, **options: Any) -> Mask | Each:
        """The mask of the next ``rows`` rows; one for every text where they differ."""
        masks = [lane.make_mask(rows, **options) for lane in self.lanes]
        if isinstance(masks[0], mx.array) or any(m is not masks[0] for m in masks):
            return Each(masks)
        return masks[0]

    def advance(self, rows: int) -> None:
        """A layer read ``rows`` rows; the states count them."""

    def __getitem__(self, index: int) -> Any:
        parts = [lane[index] for lane in self.lanes]
        if isinstance(self.lanes[0], LaneList):
            return TextLanes(parts)
        return None if parts[0] is None else mx.concatenate(parts)

    def __setitem__(self, index: int, value: mx.array) -> None:
        for i, lane in enumerate(self.lanes):
            lane[index] = value[i : i + 1]


class SharedLayers:
    """Subclasses of the modules that touch what a text remembers.

    Args:
        layers: decoder layers.
        apart: run such modules whole for every text, instead of attention alone.
    """

    def __init__(self, layers: Sequence[nn.Module], *, apart: bool):
        self._changed: list[nn.Module] = []
        made: dict[type[nn.Module], type[nn.Module]] = {}
        for module in _mixers(layers) if apart else _attending(layers):
            kind = type(module)
            if kind not in made:
                call = _run_apart(kind) if apart else with_attention(kind, _apart)
                made[kind] = type(f"Shared{kind.__name__}", (kind,), {"__call__": call})
            module.__class__ = made[kind]
            self._changed.append(module)

    def remove(self) -> None:
        """Give every module its own class back."""
        for module in self._changed:
            module.__class__ = type(module).__mro__[1]
        self._changed.clear()


def _attending(layers: Sequence[nn.Module]) -> list[nn.Module]:
    modules = (module for layer in layers for module in layer.modules())
    return [module for module in modules if attends(type(module))]


def _mixers(layers: Sequence[nn.Module]) -> list[nn.Module]:
    """The modules a decoder layer hands its cache to."""
    return [
        child
        for layer in layers
        for child in layer.children().values()
        if isinstance(child, nn.Module) and _takes_cache(type(child))
    ]


def _takes_cache(kind: type[nn.Module]) -> bool:
    return "cache" in inspect.signature(kind.__call__).parameters


def _apart(attention: Attention) -> Attention:
    """An attention function that asks ``attention`` once for every text."""

    def attend(
        queries: mx.array, keys: Any, values: Any, *more: Any, **options: Any
    ) -> mx.array:
        if not isinstance(keys, Each):
            return attention(queries, keys, values, *more, **options)
        return mx.concatenate(
            [
                attention(queries[i : i + 1], keys[i], values[i], *rest, **named)
                for i, (rest, named) in enumerate(_parted(len(keys), more, options))
            ]
        )

    return attend


def _run_apart(kind: type[nn.Module]) -> Callable[..., Any]:
    """The whole module, once for every text."""

    def call(self: nn.Module, x: mx.array, *more: Any, **options: Any) -> Any:
        caches = [a for a in (*more, *options.values()) if isinstance(a, TextLanes)]
        if not caches or isinstance(caches[0].lanes[0], LaneRecurrent):
            return kind.__call__(self, x, *more, **options)
        return mx.concatenate(
            [
                kind.__call__(self, x[i : i + 1], *rest, **named)
                for i, (rest, named) in enumerate(_parted(len(x), more, options))
            ]
        )

    return call


def _parted(
    texts: int, more: Sequence[Any], options: dict[str, Any]
) -> list[tuple[list[Any], dict[str, Any]]]:
    """The arguments of every text's own call."""
    return [
        (
            [_of(value, i) for value in more],
            {name: _of(value, i) for name, value in options.items()},
        )
        for i in range(texts)
    ]


def _of(value: Any, text: int) -> Any:
    each = value.lanes if isinstance(value, TextLanes) else value
    return each[text] if isinstance(each, Each) else value
