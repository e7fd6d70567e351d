# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
import tiny

from splashpy.errors import ModelKindError
from splashpy.models.loading import load_target
from splashpy.models.rotary import rotary_keys
from splashpy.models.target import MlxLmTarget

YARN = {
    "rope_type": "yarn",
    "factor": 4.0,
    "original_max_position_embeddings": 64,
    "rope_theta": 1e6,
}
FAMILIES = ("llama", "qwen3", "qwen3_moe", "qwen3_next", "gpt_oss", "minimax")


def load(directory: Path, config: dict[str, Any]) -> MlxLmTarget:
    (directory / "config.json").write_text(json.dumps(config))
    return load_target(directory, config, 512, lambda *_: None)


def logits(directory: Path, config: dict[str, Any]) -> mx.array:
    target = load(directory, config)
    return target.forward(target.new_state(64), mx.arange(48), rows=4).logits


@pytest.mark.parametrize("family", FAMILIES)
def test_settings_in_an_object_of_their_own_are_those_beside_it(
    family: str, tmp_path: Path
) -> None:
    tiny.write_model(tmp_path, family)
    usual = tiny.config(family)
    nested = {key: value for key, value in usual.items() if key != "rope_theta"}
    settings = {"rope_type": "default", "rope_theta": 1e6}
    if "partial_rotary_factor" in nested:
        settings["partial_rotary_factor"] = nested.pop("partial_rotary_factor")

    wanted = logits(tmp_path, usual | {"rope_theta": 1e6})

    assert mx.array_equal(
        logits(tmp_path, nested | {"rope_parameters": settings}), wanted
    )
    assert not mx.array_equal(logits(tmp_path, usual), wanted)


@pytest.mark.parametrize("family", ["llama", "qwen3", "qwen3_moe", "gpt_oss"])
def test_scaling_in_an_object_of_its_own_is_applied(
    family: str, tmp_path: Path
) -> None:
    tiny.write_model(tmp_path, family)
    usual = tiny.config(family, rope_theta=1e6)
    nested = {key: value for key, value in usual.items() if key != "rope_theta"}
    scaling = {key: value for key, value in YARN.items() if key != "rope_theta"}

    wanted = logits(tmp_path, usual | {"rope_scaling": scaling})

    assert mx.array_equal(logits(tmp_path, nested | {"rope_parameters": YARN}), wanted)
    assert not mx.array_equal(logits(tmp_path, usual), wanted)


def test_what_is_said_beside_the_object_is_not_changed() -> None:
    assert (
        rotary_keys({"rope_theta": 5e5, "rope_parameters": {"rope_theta": 1e6}}) == {}
    )
    assert rotary_keys(
        {"rope_theta": None, "rope_parameters": {"rope_theta": 1e6}}
    ) == {"rope_theta": 1e6}
    for odd in (None, 7, {}, {"sliding_attention": {}}):
        assert rotary_keys({"rope_parameters": odd}) == {}
    full = {"rope_theta": 1e6, "partial_rotary_factor": 0.25}
    assert rotary_keys({"rope_parameters": {"full_attention": full}}) == {
        "rope_theta": 1e6
    }


GEMMA3 = {
    "hidden_size": 64,
    "num_hidden_layers": 4,
    "intermediate_size": 96,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "query_pre_attn_scalar": 16,
    "vocab_size": tiny.VOCAB,
    "sliding_window": 16,
    "sliding_window_pattern": 2,
}


def test_settings_for_each_kind_of_layer_are_those_of_an_older_model(
    tmp_path: Path,
) -> None:
    tiny.write_model(tmp_path, "gemma3_text", **GEMMA3)
    bare = {"model_type": "gemma3_text", **GEMMA3}
    usual = bare | {
        "rope_theta": 1e5,
        "rope_local_base_freq": 5e3,
        "rope_scaling": {"rope_type": "linear", "factor": 8.0},
    }
    by_layer = {
        "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e5},
        "sliding_attention": {"rope_type": "default", "rope_theta": 5e3},
    }

    wanted = logits(tmp_path, usual)

    nested = bare | {"rope_parameters": by_layer}
    assert mx.array_equal(logits(tmp_path, nested), wanted)
    assert not mx.array_equal(logits(tmp_path, bare), wanted)


def frequencies(scaling: dict[str, Any], base: float, width: int) -> np.ndarray:
    """Of a rotation whose scaling is told, by the papers' formulas, in float64."""
    plain = base ** -(np.arange(0, width, 2) / width)
    factor = scaling["factor"]
    if scaling["rope_type"] == "linear":
        return plain / factor
    original = scaling["original_max_position_embeddings"]
    turns = original * plain / (2 * math.pi)
    if scaling["rope_type"] == "llama3":
        low, high = scaling["low_freq_factor"], scaling["high_freq_factor"]
        kept = np.clip((turns - low) / (high - low), 0, 1)
    else:  # yarn, whose ramp runs over channels

        def channel(rotations: float) -> float:
            return (
                width
                * math.log(original / (rotations * 2 * math.pi))
                / (2 * math.log(base))
            )

        first, last = math.floor(channel(32)), math.ceil(channel(1))
        first, last = max(first, 0), min(last, width - 1)
        kept = 1 - np.clip((np.arange(width // 2) - first) / (last - first), 0, 1)
    return plain * kept + plain / factor * (1 - kept)


@pytest.mark.parametrize(
    "scaling",
    [
        {"rope_type": "linear", "factor": 8.0},
        {
            "rope_type": "llama3",
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 256,
        },
        {
            "rope_type": "yarn",
            "factor": 4.0,
            "original_max_position_embeddings": 4096,
        },
    ],
    ids=lambda scaling: scaling["rope_type"],
)
def test_a_model_whose_layers_know_no_scaling_is_scaled_as_its_file_says(
    scaling: dict[str, Any], tmp_path: Path
) -> None:
    tiny.write_model(tmp_path, "qwen3_moe")
    config = tiny.config("qwen3_moe", rope_scaling=scaling)
    layer = load(tmp_path, config)._backbone.layers[0].self_attn

    # A pair of ones at position p turns to the angle p * frequency + 45 degrees.
    turned = np.array(layer.rope(mx.ones((1, 1, 8, 16)), offset=3))[0, 0]
    pairs = turned[:, :8] + 1j * turned[:, 8:]
    angles = np.outer(np.arange(3, 11), frequencies(scaling, 10000.0, 16))
    length = 0.1 * math.log(4.0) + 1 if scaling["rope_type"] == "yarn" else 1.0
    expected = length * (1 + 1j) * np.exp(1j * angles)

    np.testing.assert_allclose(pairs, expected, atol=2e-5)


def test_a_text_model_inside_is_given_the_same() -> None:
    text = {"hidden_size": 64, "rope_parameters": {"rope_theta": 1e6}}

    assert rotary_keys({"text_config": text}) == {
        "text_config": {**text, "rope_theta": 1e6}
    }


@pytest.mark.parametrize("key", ["rope_theta", "intermediate_size"])
def test_a_key_that_is_missing_is_named(key: str, tmp_path: Path) -> None:
    tiny.write_model(tmp_path, "qwen3")
    config = {k: v for k, v in tiny.config("qwen3").items() if k != key}

    with pytest.raises(ModelKindError, match=r"config\.json") as failure:
        load(tmp_path, config)

    assert key in failure.value.why
