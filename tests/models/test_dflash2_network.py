# SPDX-License-Identifier: Apache-2.0
"""Laws of the network that no stored number shows."""

from __future__ import annotations

import itertools
import random
from pathlib import Path

import mlx.core as mx
import pytest

from splashpy.models.dflash2 import DFlashNetwork
from splashpy.models.dflash2_context import DrafterContext
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
BLOCK = 8


def load(folder: Path) -> DFlashNetwork:
    return load_drafter(folder, FACTS, dtype=mx.float32)


def features(first: int, count: int, width: int) -> mx.array:
    """Rows that depend on their position only."""
    keys = [mx.random.key(position) for position in range(first, first + count)]
    return mx.stack([mx.random.normal((width,), key=key) for key in keys])


def width(network: DFlashNetwork) -> int:
    return len(network.config.feature_layers) * network.config.hidden_size


def same(one: DrafterContext, other: DrafterContext) -> bool:
    return one.position == other.position and all(
        mx.array_equal(a, b)
        for ours, theirs in zip(one.layers, other.layers, strict=True)
        for a, b in zip(ours.rows, theirs.rows, strict=True)
    )


@pytest.fixture(params=["v2_sliding", "v2_causal_mixed", "v1_sliding_default"])
def network(request: pytest.FixtureRequest) -> DFlashNetwork:
    return load(GOLDEN / request.param)


def test_200_cycles_of_every_accepted_length_leave_the_state_of_a_fresh_run(
    network: DFlashNetwork,
) -> None:
    # Every length follows every other one; blocks in between leave no trace.
    pairs = itertools.product(range(1, BLOCK + 1), repeat=2)
    lengths = list(itertools.chain.from_iterable(pairs))
    lengths += random.Random(1).choices(range(1, BLOCK + 1), k=200 - len(lengths))
    rows = features(0, sum(lengths), width(network))
    block = mx.random.normal((BLOCK, 32), key=mx.random.key(9))
    context = network.new_context()
    for cycle, length in enumerate(lengths, start=1):
        done = context.position
        network.extend(context, rows[done : done + length])
        network(block, context)
        if cycle % 40 == 0:
            fresh = network.new_context()
            network.extend(fresh, rows[: context.position])
            assert same(context, fresh)
            assert mx.array_equal(network(block, context), network(block, fresh))


@pytest.mark.parametrize("name", ["v2_sliding", "v2_causal_mixed"])
def test_a_block_sees_nothing_beyond_its_window(name: str) -> None:
    network = load(GOLDEN / name)
    block = mx.random.normal((BLOCK, 32), key=mx.random.key(9))

    def hidden(rows: mx.array) -> mx.array:
        context = network.new_context()
        network.extend(context, rows)
        return network(block, context)

    rows = features(0, 40, width(network))
    far, near = mx.array(rows), mx.array(rows)
    far[: 40 - 11] = 5.0  # positions that even the anchor's row cannot see
    near[40 - 11] = 5.0  # the oldest one it can
    if name == "v2_sliding":
        assert mx.array_equal(hidden(far), hidden(rows))
    else:  # the layer without a window sees them
        assert not mx.array_equal(hidden(far), hidden(rows))
    assert not mx.array_equal(hidden(near), hidden(rows))


def test_rows_out_of_sight_are_not_projected(monkeypatch: pytest.MonkeyPatch) -> None:
    network = load(GOLDEN / "v2_sliding")
    projected: list[int] = []
    fc = network.fc

    def counting(x: mx.array) -> mx.array:
        projected.append(x.shape[0])
        return fc(x)

    monkeypatch.setattr(network, "fc", counting)
    network.extend(network.new_context(), features(0, 500, width(network)))
    assert projected == [11]


def test_a_later_start_moves_every_position_by_the_same_amount() -> None:
    # Rotary attention sees differences of positions only.
    network = load(GOLDEN / "v2_sliding")
    block = mx.random.normal((BLOCK, 32), key=mx.random.key(9))
    outputs = []
    for start in (0, 100):
        context = network.new_context()
        context.position = start
        network.extend(context, features(0, 20, width(network)))
        assert context.position == start + 20
        outputs.append(network(block, context))
    # Angles of larger positions are rounded more coarsely.
    assert mx.allclose(*outputs, atol=1e-4)


def test_a_block_without_any_context_still_has_finite_rows(
    network: DFlashNetwork,
) -> None:
    hidden = network(mx.ones((BLOCK, 32)), network.new_context())
    assert mx.all(mx.isfinite(hidden)).item()


def test_only_a_bidirectional_block_lets_rows_see_later_ones() -> None:
    block = mx.random.normal((BLOCK, 32), key=mx.random.key(9))
    later = mx.array(block)
    later[5:] = 3.0
    for name, unchanged in (("v2_causal_mixed", True), ("v2_sliding", False)):
        network = load(GOLDEN / name)
        context = network.new_context()
        network.extend(context, features(0, 6, width(network)))
        rows, moved = network(block, context), network(later, context)
        assert mx.array_equal(rows[:5], moved[:5]).item() is unchanged
