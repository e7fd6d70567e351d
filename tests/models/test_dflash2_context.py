# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import mlx.core as mx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from splashpy.models.dflash2_context import DrafterContext, LayerContext

HEADS, WIDTH = 2, 4

steps = st.lists(
    st.tuples(st.sampled_from(["append", "block"]), st.integers(1, 9)), max_size=60
)


def rows(first: int, count: int) -> tuple[mx.array, mx.array]:
    """Keys that name their position, and values that are their negatives."""
    keys = mx.broadcast_to(
        mx.arange(first, first + count, dtype=mx.float32)[None, None, :, None],
        (1, HEADS, count, WIDTH),
    )
    return keys, -keys


def positions(keys: mx.array) -> list[int]:
    return [int(p) for p in np.array(keys)[0, 0, :, 0]]


@given(steps, st.sampled_from([None, 2, 7, 12]))
def test_rows_stay_in_time_order_whatever_comes_between(
    actions: list[tuple[str, int]], window: int | None
) -> None:
    layer, held = LayerContext(window), []
    position = 0
    for action, count in actions:
        if action == "append":
            seen = layer.visible(count)
            position += count
            layer.append(*rows(position - seen, seen))
            held = (held + list(range(position - seen, position)))[
                0 if window is None else 1 - window :
            ]
            assert positions(layer.rows[0]) == held
            assert mx.array_equal(layer.rows[0], -layer.rows[1])
        else:
            block = list(range(position, position + count))
            keys, values = layer.with_block(*rows(position, count))
            assert positions(keys) == held + block
            assert mx.array_equal(keys, -values)
        assert len(layer) == len(held)


@given(
    held=st.integers(0, 30),
    count=st.integers(1, 8),
    window=st.sampled_from([None, 8, 12]),
    causal=st.booleans(),
)
def test_the_mask_follows_from_positions(
    held: int, count: int, window: int | None, causal: bool
) -> None:
    layer = LayerContext(window)
    seen = layer.visible(held)
    if seen:
        layer.append(*rows(held - seen, seen))
    mask = layer.mask(count, causal=causal)
    anchor = held
    expected = [
        [window is None or anchor + i - p < window for p in range(held - seen, held)]
        + [j <= i or not causal for j in range(count)]
        for i in range(count)
    ]
    if mask is None:
        assert all(all(row) for row in expected)
    elif isinstance(mask, str):
        assert mask == "causal"
        assert expected == [
            [True] * (seen + i + 1) + [False] * (count - 1 - i) for i in range(count)
        ]
    else:
        assert mask.tolist() == expected


@pytest.mark.parametrize("window", [12, 100, 2048])
def test_a_window_bounds_memory_however_long_the_text(window: int) -> None:
    layer = LayerContext(window)
    position = 0
    for _ in range(600):
        layer.append(*rows(position, 5))
        position += 5
        mx.eval(layer.arrays)
    row_bytes = 2 * HEADS * WIDTH * 4
    assert sum(a.nbytes for a in layer.arrays) <= (window - 1 + 256) * row_bytes
    assert positions(layer.rows[0]) == list(range(position - window + 1, position))


def test_memory_follows_the_rows_held_not_the_largest_context() -> None:
    context = DrafterContext([None, 2048])
    assert context.nbytes == 0
    for layer in context.layers:
        layer.append(*rows(0, 10))
    row_bytes = 2 * HEADS * WIDTH * 4
    assert context.nbytes <= 2 * 64 * row_bytes
    for start in range(10, 1000, 10):
        context.layers[0].append(*rows(start, 10))
    assert sum(a.nbytes for a in context.layers[0].arrays) <= 2 * 1000 * row_bytes


def test_an_unbounded_layer_copies_each_row_a_bounded_number_of_times() -> None:
    layer, moved, before = LayerContext(None), 0, 0
    for position in range(4096):
        layer.append(*rows(position, 1))
        capacity = layer.arrays[0].shape[2]
        if capacity != before:
            moved += position
            before = capacity
        if position % 64 == 0:
            mx.eval(layer.arrays)
    assert moved <= 2 * 4096


def test_rows_before_the_first_append_are_a_mistake() -> None:
    with pytest.raises(ValueError, match="no context row"):
        _ = LayerContext(4).rows


@given(
    window=st.sampled_from([None, 5, 12]),
    lengths=st.lists(st.integers(1, 9), min_size=1, max_size=12),
    cut=st.integers(0, 40),
    more=st.integers(1, 4),
)
def test_a_context_that_was_cut_or_copied_goes_on_like_one_that_began_there(
    window: int | None, lengths: list[int], cut: int, more: int
) -> None:
    context = DrafterContext([window])
    (layer,) = context.layers
    for count in lengths:
        seen = layer.visible(count)
        context.position += count
        layer.append(*rows(context.position - seen, seen))
    held = positions(layer.rows[0])
    length = min(cut, context.position)
    other = context.copy()
    assert other.position == context.position
    other.cut(length)
    left = [position for position in held if position < length]
    assert len(other) == len(left)
    other.layers[0].append(*rows(length, more))
    keep = slice(None) if window is None else slice(-(window - 1), None)
    assert (
        positions(other.layers[0].rows[0])
        == [
            *left,
            *range(length, length + more),
        ][keep]
    )
    assert positions(layer.rows[0]) == held  # the original did not change
    assert context.bounded == (window is not None)
