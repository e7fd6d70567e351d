# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import mlx.core as mx
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


@pytest.mark.parametrize("family", ["llama", "qwen3", "gpt_oss"])
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
    by_layer = {"full_attention": {"rope_theta": 1e6}, "rope_type": "default"}
    for odd in (by_layer, None, 7, {}):
        assert rotary_keys({"rope_parameters": odd}) == {}


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
