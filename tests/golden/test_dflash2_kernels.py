# SPDX-License-Identifier: Apache-2.0
"""The convolution alone and the walks alone, on stored tables."""

from __future__ import annotations

import json
from pathlib import Path

import mlx.core as mx
import numpy as np
import pytest

from splashpy.kernels.candidate_selector import (
    Lattice,
    walk_greedy,
    walk_look_ahead,
)
from splashpy.kernels.dynamic_causal_conv import dynamic_causal_conv

GROUP_SIZE = 4


@pytest.mark.parametrize("taps", [2, 3])
def test_convolution_before_and_after_a_sublayer(stored: Path, taps: int) -> None:
    arrays = mx.load(str(stored / "conv_unit" / "io.safetensors"))
    assert isinstance(arrays, dict)
    case = {
        name.removeprefix(f"taps{taps}."): array
        for name, array in arrays.items()
        if name.startswith(f"taps{taps}.")
    }
    x, base = case["input"], case["base_kernel"]
    dynamic = (x @ case["kernel_projection.weight"].T).reshape(2, 5, 2, taps, 4)

    prepared = dynamic_causal_conv(x, dynamic[:, :, 0], base[0], group_size=GROUP_SIZE)
    finished = dynamic_causal_conv(
        case["sublayer_output"], dynamic[:, :, 1], base[1], group_size=GROUP_SIZE
    )

    for actual, name in (
        (prepared, "prepared"),
        (dynamic[:, :, 1], "finish_coefficients"),
        (finished, "finished"),
    ):
        np.testing.assert_allclose(
            np.array(actual), np.array(case[name]), rtol=0, atol=2e-5
        )


def test_greedy_and_look_ahead_walks_take_the_stored_paths(stored: Path) -> None:
    cases = json.loads((stored / "selector_walk" / "paths.json").read_text())["cases"]
    assert any(case["greedy"] != case["lookahead"] for case in cases)
    for case in cases:
        lattice = Lattice(mx.array(case["scores_first"]), mx.array(case["scores_next"]))
        assert walk_greedy(lattice).tolist() == case["greedy"]
        assert walk_look_ahead(lattice).tolist() == case["lookahead"]
