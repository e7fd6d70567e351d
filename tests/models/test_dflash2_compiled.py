# SPDX-License-Identifier: Apache-2.0
"""The traced network computes what the plain one computes."""

from __future__ import annotations

from pathlib import Path

import mlx.core as mx
import mlx.nn as nn
import pytest

from splashpy.models.dflash2 import DFlashNetwork
from splashpy.models.dflash2_compiled import CompiledNetwork
from splashpy.models.dflash2_load import load_drafter
from splashpy.models.target import TargetFacts

GOLDEN = Path(__file__).parents[1] / "golden" / "dflash2"
FACTS = TargetFacts(
    model_type="imaginary",
    vocab_size=64,
    hidden_size=32,
    num_layers=8,
    context_max=4096,
)
ROUNDS = (20, 1, 3, 8, 2, 1, 40, 5)


def features(rows: int, network: DFlashNetwork, seed: int) -> mx.array:
    width = len(network.config.feature_layers) * network.config.hidden_size
    return mx.random.normal((rows, width), key=mx.random.key(seed))


def block(network: DFlashNetwork, rows: int, seed: int) -> mx.array:
    shape = (rows, network.config.hidden_size)
    return mx.random.normal(shape, key=mx.random.key(1000 + seed))


def largest_difference(network: DFlashNetwork) -> float:
    """Over contexts that grow, windows that fill and blocks of several lengths."""
    blocks = [block(network, 8 - n % 3, n) for n in range(len(ROUNDS))]
    anchors = mx.stack([rows[0] for rows in blocks])  # token n begins block n
    compiled, worst = CompiledNetwork(network, lambda ids: anchors[ids]), 0.0
    plain_context, context = network.new_context(), network.new_context()
    for number, rows in enumerate(ROUNDS):
        network.extend(plain_context, features(rows, network, number))
        compiled.extend(context, features(rows, network, number))
        plain = network(blocks[number], plain_context).astype(mx.float32)
        piece = compiled(mx.array(number), blocks[number][1:], context)
        fast = compiled.finish(*piece).astype(mx.float32)
        worst = max(worst, mx.abs(plain - fast).max().item())
        assert context.position == plain_context.position
    return worst


@pytest.mark.parametrize(
    "folder", ["v2_sliding", "v2_causal_mixed", "v1_sliding_default"]
)
def test_in_float32_they_differ_by_rounding_only(folder: str) -> None:
    network = load_drafter(GOLDEN / folder, FACTS, dtype=mx.float32)
    assert largest_difference(network) < 2e-5


def test_in_bfloat16_they_differ_by_its_rounding_only() -> None:
    network = load_drafter(GOLDEN / "v2_sliding", FACTS, dtype=mx.bfloat16)
    # Rows of size 1 to 4 after two layers: a few units of 2^-6 in the last place.
    assert largest_difference(network) < 0.15


@pytest.mark.parametrize("bits", [4, 8])
def test_packed_matrices_of_all_layers_make_one_product(bits: int) -> None:
    network = load_drafter(GOLDEN / "v2_sliding", FACTS, dtype=mx.float32)
    nn.quantize(
        network,
        group_size=32,
        bits=bits,
        class_predicate=lambda _, m: (
            isinstance(m, nn.Linear) and m.weight.shape[1] % 32 == 0
        ),
    )
    assert largest_difference(network) < 2e-5


def test_matrices_packed_differently_are_multiplied_one_by_one() -> None:
    network = load_drafter(GOLDEN / "v2_sliding", FACTS, dtype=mx.float32)
    nn.quantize(
        network,
        group_size=32,
        bits=8,
        class_predicate=lambda path, _: path.endswith("layers.0.self_attn.k_proj"),
    )
    assert isinstance(network.layers[0].self_attn.k_proj, nn.QuantizedLinear)
    assert largest_difference(network) < 2e-5
