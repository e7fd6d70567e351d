# SPDX-License-Identifier: Apache-2.0
"""The decay of a GDN layer, ``-exp(A_log)``, which a file stores in place of ``A_log``.

The published packages were made with two exponentials that differ in the last bit, so
the stored number must be kept where bytes matter; computing it anew would change some.
"""

from __future__ import annotations

import numpy as np

from splashpy.errors import IntegrityError
from splashpy.package.weights.tensor import Tensor, to_bfloat16, to_float32

_NEAR_ULPS = 2  # MLX's float32 exponential is at most one off, the check allows as much


def from_a_log(a_log: Tensor) -> Tensor:
    """The decay of ``A_log``: the exponential in float64, rounded to float32."""
    exact = -np.exp(to_float32(a_log).astype(np.float64))
    return Tensor("F32", exact.astype(np.float32))


def to_a_log(decay: Tensor, name: str) -> Tensor:
    """``A_log`` of a stored decay.

    Checkpoints have it in bfloat16, which the logarithm recovers exactly, even from a
    decay whose last bit differs. A decay that no bfloat16 explains gives float32.

    Raises:
        IntegrityError: a decay is not a finite negative number.
    """
    values = decay.data
    if not (np.isfinite(values).all() and (values < 0).all()):
        raise IntegrityError(f"{name}: a decay is not a finite negative number")
    logarithm = np.log(-values.astype(np.float64)).astype(np.float32)
    short = to_bfloat16(logarithm)
    off = from_a_log(short).data.view(np.int32).astype(np.int64)
    off -= values.view(np.int32)
    near = bool((np.abs(off) <= _NEAR_ULPS).all())
    return short if near else Tensor("F32", logarithm)
