# SPDX-License-Identifier: Apache-2.0
"""What no drafter is known for decodes plainly; what cannot be kept is refused."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import pytest
import tiny
from mlx_lm.models import llama
from mlx_lm.models.cache import ChunkedKVCache, RotatingKVCache

from splashpy.drafting.lookup import LookupDrafter
from splashpy.drafting.plain import PlainDrafter
from splashpy.errors import ModelKindError
from splashpy.models.gated_delta import DeltaRecorder
from splashpy.models.loading import load_target
from splashpy.models.target import MlxLmTarget, check_taps

OTHERS: dict[str, dict[str, Any]] = {
    # A head no one here knows: it scales its logits.
    "cohere2": {
        "sliding_window": 8,
        "sliding_window_pattern": 2,
        "logit_scale": 0.3,
        "layer_norm_eps": 1e-5,
    },
    # A recurrence no one here can run again.
    "olmo_hybrid": {
        "linear_num_key_heads": 2,
        "linear_num_value_heads": 2,
        "linear_key_head_dim": 16,
        "linear_value_head_dim": 16,
        "linear_conv_kernel_dim": 4,
        "linear_allow_neg_eigval": True,
        "attention_bias": False,
        "layer_types": ["linear_attention", "full_attention"] * 2,
        "rope_parameters": {"rope_theta": 10000.0},
    },
}


@pytest.fixture(scope="module", params=list(OTHERS))
def other(request: pytest.FixtureRequest) -> MlxLmTarget:
    return tiny.target(request.param, **OTHERS[request.param])


def test_no_network_drafts_for_an_architecture_without_drafters(
    other: MlxLmTarget,
) -> None:
    family = other.facts.model_type
    reason = f"no drafter is known for models of mlx_lm.models.{family}"
    assert check_taps(other, (0, 2)) == reason


def test_other_architectures_look_up_all_the_same(
    other: MlxLmTarget, answer: Callable, difference: Callable
) -> None:
    prompt = tuple(range(20)) * 2
    plain = answer(other, PlainDrafter(), prompt=prompt)
    looked_up = answer(other, LookupDrafter(), prompt=prompt)
    assert looked_up.tokens == plain.tokens
    assert difference(plain.state, looked_up.state) == 0


def test_other_architectures_take_drafts_of_every_length_back(
    other: MlxLmTarget, answer: Callable, drafter: Callable, difference: Callable
) -> None:
    plain = answer(other, PlainDrafter())
    lengths = itertools.cycle([0, 3, 7, 1, 5, 2, 6, 4])
    drafting = drafter(other, plain.tokens, lengths)
    drafting.feature_layers = ()
    drafted = answer(other, drafting)
    assert set(drafted.accepted) == set(range(8))
    assert drafted.tokens == plain.tokens
    assert difference(plain.state, drafted.state) == 0


def test_a_recurrence_that_does_not_repeat_is_read_again_instead(
    answer: Callable,
    drafter: Callable,
    difference: Callable,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sound = DeltaRecorder._states

    def unsound(*args: Any) -> Any:
        return [state + 1e-6 for state in sound(*args)]

    monkeypatch.setattr(DeltaRecorder, "_states", unsound)
    target = tiny.target("qwen3_5")
    assert target._recorder is None
    plain = answer(target, drafter(target))
    lengths = itertools.cycle([0, 3, 7, 1, 5, 2, 6, 4])
    drafted = answer(target, drafter(target, plain.tokens, lengths))
    assert drafted.tokens == plain.tokens
    assert difference(plain.state, drafted.state) == 0


@pytest.mark.parametrize(
    "cache", [ChunkedKVCache(8), RotatingKVCache(8, keep=4)], ids=["chunked", "sinks"]
)
def test_a_cache_that_cannot_be_cut_exactly_is_refused_by_name(
    cache: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(llama.Model, "make_cache", lambda self: [cache] * 4)
    with pytest.raises(ModelKindError, match=r"mlx_lm\.models\.llama") as caught:
        tiny.target()
    assert type(cache).__name__ in caught.value.why


def test_a_model_that_computes_something_else_with_its_own_caches_is_refused() -> None:
    class Louder(nn.RMSNorm):
        """A norm that tells mlx-lm's caches from ours."""

        def __call__(self, x: mx.array) -> mx.array:
            return super().__call__(x) * next(self.factors)

    network: Any = tiny.model()
    norm: Any = network.model.norm
    norm.__class__ = Louder
    norm.__dict__["factors"] = itertools.count(1)
    with pytest.raises(ModelKindError, match="cannot run here") as caught:
        tiny.target_of(network, "llama")
    assert "logits differ by" in caught.value.why


def test_a_model_split_over_machines_is_refused() -> None:
    class Group:
        """The first of two machines: the last layers run here."""

        def rank(self) -> int:
            return 0

        def size(self) -> int:
            return 2

    network: Any = tiny.model("qwen3_moe")
    network.model.pipeline(Group())
    with pytest.raises(ModelKindError, match="split over several machines") as caught:
        tiny.target_of(network, "qwen3_moe")
    assert caught.value.why == "2 of 4 layers are not here"


def test_a_model_that_asks_more_of_its_cache_is_refused() -> None:
    class Curious(nn.RMSNorm):
        def __call__(self, x: mx.array) -> mx.array:
            raise AttributeError("no attribute 'left_padding'")

    network: Any = tiny.model()
    network.model.norm.__class__ = Curious
    with pytest.raises(ModelKindError, match="cannot run here") as caught:
        tiny.target_of(network, "llama")
    assert "left_padding" in caught.value.why


def test_weights_that_compute_nan_are_not_taken_for_another_architecture() -> None:
    network: Any = tiny.model("qwen3_5")
    norm = network.language_model.model.norm
    norm.weight = mx.full(norm.weight.shape, mx.nan)
    assert tiny.target_of(network, "qwen3_5")._recorder is not None


def test_an_architecture_mlx_lm_does_not_have_is_refused_by_name(
    tmp_path: Path,
) -> None:
    tiny.write_model(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    for model_type in ("gpt9", "", "../models/llama", "llama.Model"):
        with pytest.raises(ModelKindError, match="is not supported") as caught:
            load_target(tmp_path, {**config, "model_type": model_type}, 512, print)
        assert repr(model_type) in caught.value.message
        assert "qwen3_5" in caught.value.why
