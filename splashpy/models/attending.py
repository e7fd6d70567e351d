# SPDX-License-Identifier: Apache-2.0
"""Layers of mlx-lm with another attention function.

Attention is a function that mlx-lm's layers look up by name. A copy of a layer's own
code looks it up among names of its own, and mlx-lm's modules stay as they are.
"""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType
from typing import Any

import mlx.core as mx
import mlx.nn as nn

_ATTENTION = "scaled_dot_product_attention"

Attention = Callable[..., mx.array]
"""Takes what mlx-lm's function takes."""


def attends(kind: type[nn.Module]) -> bool:
    """Whether modules of this class ask mlx-lm's attention function."""
    code = getattr(kind.__call__, "__code__", None)
    return code is not None and _ATTENTION in code.co_names


def with_attention(
    kind: type[nn.Module], instead: Callable[[Attention], Attention]
) -> Callable[..., Any]:
    """The code of such a class, asking another function.

    Args:
        kind: one that :func:`attends`.
        instead: makes that function of the one the class asks now.
    """
    call: Any = kind.__call__
    names = call.__globals__
    names = {**names, _ATTENTION: instead(names[_ATTENTION])}
    made = FunctionType(
        call.__code__, names, kind.__name__, call.__defaults__, call.__closure__
    )
    made.__kwdefaults__ = call.__kwdefaults__
    return made
