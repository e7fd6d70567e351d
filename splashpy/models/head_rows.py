# SPDX-License-Identifier: Apache-2.0
"""Some rows of a head: logits of chosen tokens for the price of those tokens.

Rows stay as they are stored: packed rows stay packed, since scales and biases belong to
groups within a row.

Shapes: L hidden rows, D channels, R chosen tokens.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mlx.core as mx
import mlx.nn as nn

Head = Callable[[mx.array], mx.array]
"""[L, D] hidden rows to [L, R] logits."""


def take_rows(head: nn.Module, token_ids: mx.array) -> Head:
    """A head for some tokens only.

    Args:
        head: a linear layer, or an embedding used as one.
        token_ids: [R] int32, in the order of the logits wanted.
    """
    layer: Any = head
    names = ("weight", "scales", "biases", "bias")
    rows = {name: layer[name][token_ids] for name in names if name in layer}
    mx.eval(list(rows.values()))
    bias = rows.get("bias")
    product = _packed(layer, rows) if "scales" in rows else _plain(rows["weight"])
    return product if bias is None else lambda hidden: product(hidden) + bias


def _plain(weight: mx.array) -> Head:
    matrix = weight.T
    return lambda hidden: hidden @ matrix


def _packed(layer: Any, rows: dict[str, mx.array]) -> Head:
    def product(hidden: mx.array) -> mx.array:
        return mx.quantized_matmul(
            hidden,
            rows["weight"],
            scales=rows["scales"],
            biases=rows.get("biases"),
            transpose=True,
            group_size=layer.group_size,
            bits=layer.bits,
            mode=layer.mode,
        )

    return product
