# SPDX-License-Identifier: Apache-2.0
"""The one place that knows whether there is a GPU."""

from __future__ import annotations

import mlx.core as mx


def use_metal() -> bool:
    """Whether this process runs operations on a Metal GPU."""
    return mx.metal.is_available() and mx.default_device() == mx.gpu
