# SPDX-License-Identifier: Apache-2.0
"""A layer's own code asks another attention function, and its class the old one."""

from __future__ import annotations

from typing import Any

import mlx.core as mx
import mlx.nn as nn

from splashpy.models.attending import Attention, attends, with_attention


def scaled_dot_product_attention(queries: mx.array, *, scale: float) -> mx.array:
    return queries * scale


class Attending(nn.Module):
    def __call__(self, x: mx.array, more: float = 1.0, *, scale: float = 2.0) -> Any:
        return scaled_dot_product_attention(x, scale=scale) + more


def negated(original: Attention) -> Attention:
    return lambda *given, **options: -original(*given, **options)


def test_a_copy_of_the_code_asks_another_function_with_its_own_defaults() -> None:
    made: Any = type(
        "Made", (Attending,), {"__call__": with_attention(Attending, negated)}
    )
    x = mx.array([3.0])

    assert Attending()(x).item() == 7.0
    assert made()(x).item() == -5.0
    assert made()(x, 0.0, scale=1.0).item() == -3.0
    assert attends(made)
    assert not attends(nn.Linear)
