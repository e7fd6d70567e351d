# SPDX-License-Identifier: Apache-2.0
"""Chosen rows of a head, however it is stored."""

from __future__ import annotations

from typing import Any

import mlx.core as mx
import mlx.nn as nn
import pytest
import tiny

from splashpy.models.head_rows import take_rows

CHOSEN = mx.array([3, 4, 90, 255])


def rows(count: int = 5, size: int = 64) -> mx.array:
    return mx.random.normal((count, size), key=mx.random.key(2))


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("bits", [None, 4, 8])
def test_chosen_rows_give_the_logits_the_whole_head_gives_them(
    tied: bool, bits: int | None
) -> None:
    target = tiny.target(tie_word_embeddings=tied)
    if bits:
        nn.quantize(target._model, group_size=32, bits=bits)
    expected = target.head(rows())[:, CHOSEN]
    found = target.head_rows(CHOSEN)(rows())
    assert found.shape == (5, 4)
    assert mx.allclose(found, expected, rtol=1e-5, atol=1e-5)


def test_a_bias_belongs_to_its_row() -> None:
    layer: Any = nn.Linear(64, 300)
    layer.bias = mx.arange(300).astype(mx.float32)
    expected = layer(rows())[:, CHOSEN]
    assert mx.allclose(take_rows(layer, CHOSEN)(rows()), expected, atol=1e-4)


def test_packed_rows_stay_packed(monkeypatch: pytest.MonkeyPatch) -> None:
    layer: Any = nn.QuantizedLinear(64, 300, bias=False, group_size=32, bits=4)
    products: list[mx.array] = []
    product = mx.quantized_matmul

    def watched(hidden: mx.array, weight: mx.array, **options: Any) -> mx.array:
        products.append(weight)
        return product(hidden, weight, **options)

    monkeypatch.setattr(mx, "quantized_matmul", watched)
    take_rows(layer, CHOSEN)(rows())
    [weight] = products
    assert mx.array_equal(weight, layer.weight[CHOSEN])
