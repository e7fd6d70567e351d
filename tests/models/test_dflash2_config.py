# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

from splashpy.errors import ModelKindError, PairError
from splashpy.models.dflash2_config import DFlashConfig, check_pair
from splashpy.models.dflash2_parse import parse_config
from splashpy.models.target import TargetFacts

# The published configuration of the drafter for Qwen3.8-27B.
PUBLISHED: dict[str, Any] = {
    "architectures": ["DFlash2DraftModel"],
    "attention_bias": False,
    "hidden_act": "silu",
    "hidden_size": 5120,
    "head_dim": 128,
    "intermediate_size": 17408,
    "is_causal": False,
    "layer_types": ["sliding_attention"] * 5,
    "max_position_embeddings": 262144,
    "max_window_layers": 5,
    "model_type": "qwen3",
    "num_attention_heads": 32,
    "num_hidden_layers": 5,
    "num_key_value_heads": 8,
    "num_target_layers": 64,
    "rms_norm_eps": 1e-6,
    "rope_parameters": {"rope_theta": 10000000, "rope_type": "default"},
    "sliding_window": 2048,
    "tie_word_embeddings": False,
    "use_sliding_window": True,
    "vocab_size": 248320,
    "dflash_config": {
        "block_size": 8,
        "conv_group_size": 16,
        "conv_kernel_size": 2,
        "mask_token_id": 248070,
        "selector_rank": 256,
        "selector_top_k": 16,
        "target_layer_ids": [5, 19, 33, 47, 61],
    },
}
FACTS = TargetFacts(
    model_type="qwen3_5",
    vocab_size=248320,
    hidden_size=5120,
    num_layers=64,
    context_max=262144,
)
SELECTING = ("conv_group_size", "conv_kernel_size", "selector_rank", "selector_top_k")


def changed(top: dict[str, Any] | None = None, **nested: Any) -> dict[str, Any]:
    """The published file with other values; None removes a key."""
    raw = {**PUBLISHED, **(top or {})}
    raw["dflash_config"] = {**PUBLISHED["dflash_config"], **nested}
    for keys in (raw, raw["dflash_config"]):
        for key in [key for key, value in keys.items() if value is None]:
            del keys[key]
    return raw


def version_1(top: dict[str, Any] | None = None, **nested: Any) -> dict[str, Any]:
    without = dict.fromkeys(SELECTING)
    kind = {"architectures": ["DFlashDraftModel"]}
    return changed({**kind, **(top or {})}, **{**without, **nested})


def parse(raw: dict[str, Any]) -> DFlashConfig:
    return parse_config(raw, "drafter")


def test_a_published_file_is_read_completely() -> None:
    config = parse(PUBLISHED)
    assert config.version == 2
    assert (config.num_heads, config.num_kv_heads, config.head_dim) == (32, 8, 128)
    assert config.feature_layers == (5, 19, 33, 47, 61)
    assert config.windows == (2048,) * 5
    assert config.causal == (False,) * 5
    assert config.rope_theta == 1e7
    assert config.horizon == 2047
    assert (config.output_multiplier, config.softcap) == (1.0, None)
    assert config.quantization is None
    assert config.notes == ()


def test_a_version_1_file_may_keep_its_keys_at_the_top() -> None:
    raw = version_1({"block_size": 16, "layer_types": None}, block_size=None)
    config = parse(raw)
    assert (config.version, config.block_size) == (1, 16)
    assert config.windows == (None,) * 5
    assert config.horizon is None
    assert config.selector_top_k == 0


def test_a_version_1_file_without_a_block_size_is_read_with_a_note() -> None:
    config = parse(version_1(block_size=None))
    assert config.block_size == 16
    assert config.notes == ("block_size is missing; 16 is assumed",)


def test_a_version_2_file_without_a_block_size_is_refused() -> None:
    with pytest.raises(ModelKindError, match="block_size is missing"):
        parse(changed(block_size=None))


@pytest.mark.parametrize(
    ("top", "nested", "causal"),
    [
        ({"is_causal": True}, {"is_causal": False}, (True, True)),
        ({"is_causal": None}, {"is_causal": True}, (True, True)),
        ({"is_causal": None}, {"causal": True}, (True, True)),
        ({"is_causal": None}, {}, (True, False)),
        ({"is_causal": False}, {}, (False, False)),
    ],
)
def test_causality_falls_back_to_the_sliding_layers(
    top: dict[str, Any], nested: dict[str, Any], causal: tuple[bool, ...]
) -> None:
    layers = {
        "num_hidden_layers": 2,
        "layer_types": ["sliding_attention", "full_attention"],
    }
    assert parse(changed({**layers, **top}, **nested)).causal == causal


@pytest.mark.parametrize(
    ("top", "theta", "scale"),
    [
        ({"rope_theta": 5e5}, 5e5, 1.0),
        ({"rope_parameters": None, "rope_theta": 5e5}, 5e5, 1.0),
        ({"rope_parameters": None}, 1e4, 1.0),
        (
            {
                "rope_parameters": None,
                "rope_theta": 1e6,
                "rope_scaling": {"type": "linear", "factor": 4},
            },
            1e6,
            0.25,
        ),
    ],
)
def test_rotary_settings_of_old_and_new_files(
    top: dict[str, Any], theta: float, scale: float
) -> None:
    config = parse(changed(top))
    assert (config.rope_theta, config.rope_scale) == (theta, scale)


@pytest.mark.parametrize(
    ("target_layers", "layers", "expected"),
    [(36, 5, (1, 9, 17, 25, 33)), (36, 1, (18,)), (28, 4, (1, 9, 17, 25))],
)
def test_missing_feature_layers_are_spread_over_the_target(
    target_layers: int, layers: int, expected: tuple[int, ...]
) -> None:
    top = {
        "num_target_layers": target_layers,
        "num_hidden_layers": layers,
        "layer_types": None,
    }
    assert parse(changed(top, target_layer_ids=None)).feature_layers == expected


@pytest.mark.parametrize(("value", "cap"), [(20.0, 20.0), (0, None), (-1, None)])
def test_a_softcap_that_is_not_positive_means_none(
    value: float, cap: float | None
) -> None:
    assert parse(changed(final_logit_softcapping=value)).softcap == cap
    assert parse(changed({"final_logit_softcapping": value})).softcap == cap


def test_quantization_keeps_group_mode_and_exceptions() -> None:
    stated = {
        "group_size": 32,
        "bits": 8,
        "mode": "affine",
        "fc": {"group_size": 64, "bits": 4},
        "candidate_selector.hidden_projection": False,
    }
    packed = parse(changed({"quantization": stated})).quantization
    assert packed is not None
    usual, fc = packed.of("layers.0.mlp.up_proj"), packed.of("fc")
    assert usual is not None
    assert fc is not None
    assert (usual.group_size, usual.bits) == (32, 8)
    assert (fc.group_size, fc.bits) == (64, 4)
    assert packed.of("candidate_selector.hidden_projection") is None


@pytest.mark.parametrize("missing", SELECTING)
def test_one_key_of_a_pair_alone_is_refused(missing: str) -> None:
    for value in (None, 0):
        with pytest.raises(ModelKindError, match="belong together") as caught:
            parse(changed(**{missing: value}))
        assert missing in f"{caught.value.message} {caught.value.why}"


def test_architecture_and_keys_must_agree() -> None:
    with pytest.raises(ModelKindError, match="says DFlash 2, its keys do not"):
        parse(changed(**dict.fromkeys(SELECTING)))
    with pytest.raises(ModelKindError, match="says DFlash, its keys do not"):
        parse(version_1(selector_rank=4, selector_top_k=4))


REQUIRED = (
    "head_dim",
    "hidden_size",
    "intermediate_size",
    "max_position_embeddings",
    "num_attention_heads",
    "num_hidden_layers",
    "num_key_value_heads",
    "rms_norm_eps",
    "sliding_window",
    "vocab_size",
)


@pytest.mark.parametrize("key", REQUIRED)
def test_a_missing_key_is_named(key: str) -> None:
    with pytest.raises(ModelKindError, match=f"^drafter: {key} is missing"):
        parse(changed({key: None}))


@pytest.mark.parametrize("key", REQUIRED)
@pytest.mark.parametrize("value", ["many", -1, True, 0])
def test_a_key_of_a_wrong_kind_is_named_with_its_value(key: str, value: object) -> None:
    with pytest.raises(ModelKindError, match=re.escape(f"{key} is {value!r}")):
        parse(changed({key: value}))


@pytest.mark.parametrize(
    ("top", "nested", "named"),
    [
        ({"architectures": ["Qwen3ForCausalLM"]}, {}, "does not describe a drafter"),
        ({"architectures": None}, {}, "does not describe a drafter"),
        ({"attention_bias": True}, {}, "attention_bias"),
        ({"hidden_act": "gelu"}, {}, "hidden_act"),
        ({"layer_types": ["full_attention"]}, {}, "layer_types"),
        ({"layer_types": ["linear_attention"] * 5}, {}, "layer_types"),
        ({"layer_types": 5}, {}, "layer_types"),
        ({"is_causal": "no"}, {}, "is_causal"),
        ({"num_key_value_heads": 5}, {}, "num_attention_heads"),
        ({"head_dim": 127}, {}, "head_dim"),
        ({"rope_parameters": {"rope_type": "yarn", "factor": 4}}, {}, "rope_type"),
        ({"rope_parameters": {"rope_type": "linear"}}, {}, "factor"),
        ({"rope_parameters": {"rope_theta": -1}}, {}, "rope_theta"),
        ({"sliding_window": 7}, {}, "sliding_window"),
        ({"use_swa": True, "layer_types": None}, {}, "layer_types"),
        ({"draft_vocab_size": 32000}, {}, "draft_vocab_size"),
        ({"quantization": {"bits": 4}}, {}, "group_size"),
        ({"quantization": 4}, {}, "quantization"),
        ({"dflash_config": 3}, None, "dflash_config"),
        ({}, {"attention_sink_bias": True}, "attention_sink_bias"),
        ({}, {"attention_value_scale": 0.7}, "attention_value_scale"),
        ({}, {"partial_rotary_factor": 0.5}, "partial_rotary_factor"),
        ({}, {"markov_rank": 8}, "markov_rank"),
        ({}, {"sample_from_anchor": True}, "sample_from_anchor"),
        ({}, {"block_size": 1}, "block_size"),
        ({}, {"block_size": 65}, "block_size"),
        ({}, {"conv_group_size": 48}, "conv_group_size"),
        ({}, {"mask_token_id": None}, "mask_token_id"),
        ({}, {"mask_token_id": 248320}, "mask_token_id"),
        ({}, {"output_multiplier": 0}, "output_multiplier"),
        ({}, {"selector_top_k": 248321}, "selector_top_k"),
        ({}, {"target_layer_ids": []}, "target_layer_ids"),
        ({}, {"target_layer_ids": [1, -2]}, "target_layer_ids"),
        ({}, {"target_layer_ids": [1, 64]}, "target_layer_ids"),
        ({"num_target_layers": 2}, {"target_layer_ids": None}, "target_layer_ids"),
    ],
)
def test_what_would_compute_something_else_is_refused(
    top: dict[str, Any], nested: dict[str, Any] | None, named: str
) -> None:
    raw = {**PUBLISHED, **top} if nested is None else changed(top, **nested)
    with pytest.raises(ModelKindError, match=named):
        parse(raw)


def test_unknown_keys_without_effect_are_ignored() -> None:
    extra = {"auto_map": {"AutoModel": "evil.Model"}, "num_anchors": 512}
    assert parse(changed(extra, loss_decay_gamma=4.0)) == parse(PUBLISHED)


@pytest.mark.parametrize(
    ("facts", "numbers"),
    [
        ({"hidden_size": 4096}, ("5120", "4096")),
        ({"vocab_size": 151936}, ("248320", "151936", "248070")),
        ({"num_layers": 36}, ("64", "36", "61", "35")),
    ],
)
def test_a_drafter_of_another_target_is_refused_with_the_numbers(
    facts: dict[str, int], numbers: tuple[str, ...]
) -> None:
    with pytest.raises(PairError) as caught:
        check_pair(parse(PUBLISHED), replace(FACTS, **facts))
    assert caught.value.code == "E-PAIR"
    for number in numbers:
        assert number in caught.value.why


def test_a_head_with_padding_rows_fits() -> None:
    check_pair(parse(PUBLISHED), replace(FACTS, vocab_size=248448))


@pytest.mark.parametrize(
    ("top", "named"),
    [
        ({"num_hidden_layers": 10**9, "layer_types": None}, "num_hidden_layers is 10"),
        ({"vocab_size": 10**39}, "vocab_size is 10"),
        ({"rms_norm_eps": 10**400}, "rms_norm_eps is 10"),
        ({"rms_norm_eps": float("nan")}, "rms_norm_eps is nan"),
        ({"rms_norm_eps": float("inf")}, "rms_norm_eps is inf"),
        ({"architectures": 5}, "does not describe a drafter"),
        ({"architectures": [["DFlash2DraftModel"]]}, "does not describe a drafter"),
    ],
)
def test_what_no_drafter_has_is_refused(top: dict[str, Any], named: str) -> None:
    with pytest.raises(ModelKindError, match=named):
        parse(changed(top))
