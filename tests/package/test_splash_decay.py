# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from splashpy.errors import IntegrityError
from splashpy.package.splash.decay import from_a_log, to_a_log
from splashpy.package.weights.tensor import Tensor, to_bfloat16

A_LOGS = to_bfloat16(
    np.concatenate([np.linspace(-20, 20, 4001), [1e-4, -1e-4, 3.0]]).astype(np.float32)
)


def nonzero(tensor: Tensor) -> Tensor:
    keep = (tensor.data & 0x7FFF) > 0x38D1  # beyond 1e-4: nearer to 0 is ambiguous
    return Tensor("BF16", tensor.data[keep])


@pytest.mark.parametrize("ulps", [-1, 0, 1])
def test_a_bfloat16_logarithm_comes_back_even_from_the_next_float(ulps: int) -> None:
    a_log = nonzero(A_LOGS)
    stored = from_a_log(a_log)
    shifted = (stored.data.view(np.int32) + np.int32(ulps)).view(np.float32)

    found = to_a_log(Tensor("F32", shifted), "layer")

    assert found.dtype == "BF16"
    assert np.array_equal(found.data, a_log.data)


@given(st.lists(st.floats(-15, 4, width=32), min_size=1, max_size=64))
def test_a_float32_logarithm_gives_the_same_decay_again(values: list[float]) -> None:
    stored = from_a_log(Tensor("F32", np.array(values, np.float32)))

    again = from_a_log(to_a_log(stored, "layer"))

    off = again.data.view(np.int32).astype(np.int64) - stored.data.view(np.int32)
    assert np.abs(off).max() <= 2


@pytest.mark.parametrize("value", [0.0, 1.0, np.nan, -np.inf])
def test_what_is_no_decay_is_refused(value: float) -> None:
    with pytest.raises(IntegrityError, match="layer 3"):
        to_a_log(Tensor("F32", np.array([-1, value], np.float32)), "layer 3")
