# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import mlx.core as mx
import mlx.nn as nn
import pytest
import tiny
from mlx.utils import tree_flatten

from splashpy.models.architecture import find_backbone
from splashpy.models.tap import Taps
from splashpy.models.target import MlxLmTarget, check_taps


@pytest.fixture(params=["llama", "qwen3"])
def target(request: pytest.FixtureRequest) -> MlxLmTarget:
    return tiny.target(request.param)


def logits(target: MlxLmTarget) -> mx.array:
    return target.forward(target.new_state(8), mx.arange(8), rows=8).logits


def test_logits_with_taps_equal_those_without_bit_for_bit(target: MlxLmTarget) -> None:
    plain = logits(target)
    target.tap((0, 2))
    assert mx.array_equal(plain, logits(target))


def test_a_feature_is_the_stream_after_its_layer(target: MlxLmTarget) -> None:
    backbone = find_backbone(target._model)
    hidden = backbone.embed_tokens(mx.arange(8)[None])
    expected = []
    for layer in backbone.layers:
        hidden = layer(hidden, "causal", None)
        expected.append(hidden[0])
    target.tap((0, 3))
    features = target.forward(target.new_state(8), mx.arange(8), rows=0).features
    assert features is not None
    assert mx.allclose(features[:, :64], expected[0], atol=1e-5)
    assert mx.allclose(features[:, 64:], expected[3], atol=1e-5)


def test_the_order_of_the_layer_ids_is_the_order_of_the_channels() -> None:
    target = tiny.target()
    target.tap((2, 0))
    swapped = target.forward(target.new_state(4), mx.arange(4), rows=0).features
    target.tap((0, 2))
    straight = target.forward(target.new_state(4), mx.arange(4), rows=0).features
    assert swapped is not None
    assert straight is not None
    assert mx.array_equal(swapped[:, 64:], straight[:, :64])


def test_removing_the_taps_restores_every_class(target: MlxLmTarget) -> None:
    layers = find_backbone(target._model).layers
    before = [type(layer) for layer in layers]
    target.tap((1, 3))
    assert [type(layer) for layer in layers] != before
    target.tap(())
    assert [type(layer) for layer in layers] == before
    assert target.forward(target.new_state(4), mx.arange(4), rows=4).features is None


def test_taps_of_one_model_leave_another_alone() -> None:
    first, second = tiny.target(seed=0), tiny.target(seed=1)
    first.tap((1,))
    forward = second.forward(second.new_state(4), mx.arange(4), rows=4)
    assert forward.features is None


def test_the_feature_of_several_streams_is_their_mean() -> None:
    class Streams(nn.Module):
        def __call__(self, x: mx.array) -> tuple[mx.array, str]:
            return x, "what else a layer returns"

    layer = Streams()
    taps = Taps([layer], (0,))
    streams = mx.random.normal((1, 5, 3, 8), key=mx.random.key(0))
    layer(streams)
    assert mx.allclose(taps.take(), streams[0].mean(axis=1))


def test_taps_do_not_change_the_parameters(target: MlxLmTarget) -> None:
    before = [name for name, _ in tree_flatten(target._model.parameters())]
    target.tap((0, 1, 2, 3))
    assert [name for name, _ in tree_flatten(target._model.parameters())] == before


def test_a_layer_outside_the_model_is_refused_with_its_number() -> None:
    layers = find_backbone(tiny.model()).layers
    with pytest.raises(ValueError, match=r"layers \[4\] are not among 0..3"):
        Taps(layers, (0, 4))


def test_the_check_passes_for_supported_architectures(target: MlxLmTarget) -> None:
    assert check_taps(target, (0, 2)) == ""


def test_the_check_reports_a_target_whose_head_is_not_the_models() -> None:
    target = tiny.target()
    head = target.head
    target.head = lambda hidden: head(hidden) * 1.5
    assert "differ from those without" in check_taps(target, (0, 2))
