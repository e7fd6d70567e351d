# SPDX-License-Identifier: Apache-2.0
"""Read the config.json of a DFlash or DFlash 2 drafter, checked key by key.

Such a file is a Qwen3-style configuration with a ``dflash_config`` object. Published
files put some of its keys at the top level, so both places are read, the object first.
Keys that would change the mathematics and are not implemented are refused; every other
unknown key is ignored.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any, Literal

from splashpy.errors import ModelKindError
from splashpy.models.dflash2_config import DFlashConfig, Quantization

BLOCK_SIZE_LIMIT = 64
_MOST_LAYERS = 4096  # made before a weight is looked for
_LARGEST = (1 << 31) - 1  # an axis of an array of mlx
_DEFAULT_BLOCK_SIZE = 16  # what version 1 files without the key were trained with

_VERSIONS: dict[str, Literal[1, 2]] = {"DFlashDraftModel": 1, "DFlash2DraftModel": 2}
_PAIRS = (
    ("conv_kernel_size", "conv_group_size"),
    ("selector_rank", "selector_top_k"),
)
# Key -> the values that mean it is switched off.
_UNSUPPORTED: dict[str, tuple[object, ...]] = {
    "attention_bias": (False, None),
    "attention_sink_bias": (False, None),
    "attention_value_scale": (1, None),
    "markov_rank": (0, None),
    "mlp_bias": (False, None),
    "partial_rotary_factor": (1, None),
    "sample_from_anchor": (False, None),
}


def parse_config(raw: Mapping[str, Any], name: str) -> DFlashConfig:
    """Check a config.json.

    Args:
        raw: the parsed file.
        name: what to call it in messages, such as its path.

    Raises:
        ModelKindError: a key is missing, has a wrong type or value, contradicts
            another, or asks for something that is not implemented.
    """
    keys = _Keys(raw, name)
    version = _version(keys)
    _refuse_unsupported(keys)
    block_size, notes = _block_size(keys, version)
    layers = keys.count("num_hidden_layers")
    if layers > _MOST_LAYERS:
        raise keys.wrong("num_hidden_layers", layers, f"at most {_MOST_LAYERS}")
    rope_theta, rope_scale = _rope(keys)
    windows, causal = _layers(keys, layers, block_size)
    config = DFlashConfig(
        version=version,
        hidden_size=keys.count("hidden_size"),
        intermediate_size=keys.count("intermediate_size"),
        num_layers=layers,
        num_heads=keys.count("num_attention_heads"),
        num_kv_heads=keys.count("num_key_value_heads"),
        head_dim=keys.count("head_dim"),
        vocab_size=keys.count("vocab_size"),
        rms_norm_eps=keys.number("rms_norm_eps"),
        max_positions=keys.count("max_position_embeddings"),
        rope_theta=rope_theta,
        rope_scale=rope_scale,
        windows=windows,
        causal=causal,
        block_size=block_size,
        mask_token_id=keys.count("mask_token_id", least=0),
        feature_layers=_feature_layers(keys, layers),
        num_target_layers=keys.optional_count("num_target_layers"),
        conv_kernel_size=keys.count("conv_kernel_size", least=0, default=0),
        conv_group_size=keys.count("conv_group_size", least=0, default=0),
        selector_rank=keys.count("selector_rank", least=0, default=0),
        selector_top_k=keys.count("selector_top_k", least=0, default=0),
        input_embedding_scale=keys.number("input_embedding_scale", default=1.0),
        output_multiplier=keys.number("output_multiplier", default=1.0),
        softcap=_softcap(keys),
        quantization=_quantization(keys),
        notes=notes,
    )
    _check_relations(config, keys)
    return config


class _Keys:
    """Typed access to the two places a key may stand."""

    def __init__(self, raw: Mapping[str, Any], name: str):
        nested = raw.get("dflash_config", {})
        self.name = name
        if not isinstance(nested, Mapping):
            raise self.wrong("dflash_config", nested, "an object")
        self.top = raw
        self._nested = nested

    def get(self, key: str) -> Any:
        value = self._nested.get(key)
        return self.top.get(key) if value is None else value

    def wrong(self, key: str, value: object, expected: str) -> ModelKindError:
        if value is None:
            return ModelKindError(
                f"{self.name}: {key} is missing", why=f"expected {expected}"
            )
        return ModelKindError(
            f"{self.name}: {key} is {value!r}", why=f"expected {expected}"
        )

    def count(self, key: str, *, least: int = 1, default: int | None = None) -> int:
        value = self.get(key)
        if value is None and default is not None:
            return default
        if type(value) is not int or not least <= value <= _LARGEST:
            raise self.wrong(key, value, f"an integer of at least {least}")
        return value

    def optional_count(self, key: str) -> int | None:
        return None if self.get(key) is None else self.count(key)

    def number(self, key: str, *, default: float | None = None) -> float:
        value = self.get(key)
        if value is None and default is not None:
            return default
        if not isinstance(value, int | float) or isinstance(value, bool):
            raise self.wrong(key, value, "a number above 0")
        if not 0 < value <= sys.float_info.max:  # as NaN is not
            raise self.wrong(key, value, "a number above 0")
        return float(value)


def _version(keys: _Keys) -> Literal[1, 2]:
    architectures = keys.get("architectures")
    listed = architectures if isinstance(architectures, list) else []
    versions = [version for name, version in _VERSIONS.items() if name in listed]
    if not versions:
        raise ModelKindError(
            f"{keys.name} does not describe a drafter",
            why=f"architectures is {architectures}; drafters say one of "
            f"{', '.join(_VERSIONS)}",
        )
    version = 2 if 2 in versions else 1
    for pair in _PAIRS:
        _check_pair_of_keys(keys, version, pair)
    return version


def _check_pair_of_keys(keys: _Keys, version: int, pair: tuple[str, str]) -> None:
    values = [keys.count(key, least=0, default=0) for key in pair]
    stated = ", ".join(f"{k} = {v}" for k, v in zip(pair, values, strict=True))
    if (values[0] > 0) != (values[1] > 0):
        raise ModelKindError(
            f"{keys.name}: {pair[0]} and {pair[1]} belong together",
            why=f"{stated}; both must be set or neither",
        )
    if (version == 2) != (values[0] > 0):
        expected = "both above 0" if version == 2 else "neither of them"
        raise ModelKindError(
            f"{keys.name}: architectures says DFlash{' 2' if version == 2 else ''}, "
            f"its keys do not",
            why=f"{stated}; that architecture has {expected}",
        )


def _refuse_unsupported(keys: _Keys) -> None:
    for key, off in _UNSUPPORTED.items():
        if keys.get(key) not in off:
            raise ModelKindError(
                f"{keys.name}: {key} = {keys.get(key)!r} is not supported",
                why="the drafter would compute something else than it was trained for",
            )
    if keys.get("use_swa") and keys.get("layer_types") is None:
        raise keys.wrong("layer_types", None, "a list, because use_swa is set")
    if keys.get("hidden_act") not in ("silu", None):
        raise keys.wrong("hidden_act", keys.get("hidden_act"), "silu")
    draft_vocab = keys.get("draft_vocab_size")
    if draft_vocab not in (None, keys.get("vocab_size")):
        raise keys.wrong("draft_vocab_size", draft_vocab, "the value of vocab_size")


def _block_size(keys: _Keys, version: int) -> tuple[int, tuple[str, ...]]:
    if keys.get("block_size") is None and version == 1:
        note = f"block_size is missing; {_DEFAULT_BLOCK_SIZE} is assumed"
        return _DEFAULT_BLOCK_SIZE, (note,)
    size = keys.count("block_size", least=2)
    if size > BLOCK_SIZE_LIMIT:
        raise keys.wrong("block_size", size, f"at most {BLOCK_SIZE_LIMIT}")
    return size, ()


def _rope(keys: _Keys) -> tuple[float, float]:
    """Theta and the factor on positions."""
    parameters = keys.get("rope_parameters") or keys.get("rope_scaling") or {}
    if not isinstance(parameters, Mapping):
        raise keys.wrong("rope_parameters", parameters, "an object")
    kind = parameters.get("rope_type", parameters.get("type", "default"))
    if kind not in ("default", "linear"):
        raise keys.wrong("rope_type", kind, "default or linear")
    scoped = _Keys({"rope_theta": 10000.0, **parameters}, keys.name)
    theta = keys if keys.top.get("rope_theta") is not None else scoped
    factor = scoped.number("factor") if kind == "linear" else 1.0
    return theta.number("rope_theta"), 1 / factor


def _layers(
    keys: _Keys, count: int, block_size: int
) -> tuple[tuple[int | None, ...], tuple[bool, ...]]:
    """Window and causality of every layer."""
    types = keys.get("layer_types") or ["full_attention"] * count
    known = ("full_attention", "sliding_attention")
    fits = isinstance(types, list) and len(types) == count
    if not fits or any(kind not in known for kind in types):
        raise keys.wrong("layer_types", types, f"{count} times one of {known}")
    sliding = tuple(kind == "sliding_attention" for kind in types)
    window = keys.count("sliding_window") if any(sliding) else 0
    if any(sliding) and window < block_size:
        raise keys.wrong(
            "sliding_window", window, f"at least the block size, {block_size}"
        )
    causal = keys.top.get("is_causal")
    for key in ("is_causal", "causal"):
        causal = keys.get(key) if causal is None else causal
    if not isinstance(causal, bool | None):
        raise keys.wrong("is_causal", causal, "true or false")
    windows = tuple(window if slides else None for slides in sliding)
    return windows, sliding if causal is None else (causal,) * count


def _feature_layers(keys: _Keys, layers: int) -> tuple[int, ...]:
    ids = keys.get("target_layer_ids")
    if ids is None:
        ids = _default_feature_layers(keys.count("num_target_layers"), layers)
    ints = isinstance(ids, list) and all(type(i) is int and i >= 0 for i in ids)
    if not ints or not ids:
        raise keys.wrong("target_layer_ids", ids, "a list of layer numbers")
    depth = keys.optional_count("num_target_layers")
    if depth is not None and max(ids) >= depth:
        raise keys.wrong("target_layer_ids", ids, f"numbers below {depth}")
    return tuple(ids)


def _default_feature_layers(target_layers: int, layers: int) -> list[int]:
    """Spread evenly from the second layer to the third from the end."""
    if layers == 1:
        return [target_layers // 2]
    step = (target_layers - 4) / (layers - 1)
    return [round(1 + i * step) for i in range(layers)]


def _softcap(keys: _Keys) -> float | None:
    cap = keys.get("final_logit_softcapping")
    if isinstance(cap, int | float) and cap <= 0:
        return None
    return None if cap is None else keys.number("final_logit_softcapping")


def _quantization(keys: _Keys) -> Quantization | None:
    raw = keys.top.get("quantization")
    if raw is None:
        return None
    if not isinstance(raw, Mapping):
        raise keys.wrong("quantization", raw, "an object")
    overrides = {
        path: _packing(value, keys) if isinstance(value, Mapping) else None
        for path, value in raw.items()
        if isinstance(value, Mapping) or value is False
    }
    packing = _packing(raw, keys)
    return Quantization(
        group_size=packing.group_size,
        bits=packing.bits,
        mode=packing.mode,
        overrides=overrides,
    )


def _packing(raw: Mapping[str, Any], keys: _Keys) -> Quantization:
    scoped = _Keys(raw, f"{keys.name}: quantization")
    mode = raw.get("mode", "affine")
    if not isinstance(mode, str):
        raise scoped.wrong("mode", mode, "a name")
    return Quantization(
        group_size=scoped.count("group_size"), bits=scoped.count("bits"), mode=mode
    )


def _check_relations(config: DFlashConfig, keys: _Keys) -> None:
    if config.num_heads % config.num_kv_heads:
        raise keys.wrong(
            "num_attention_heads",
            config.num_heads,
            f"a multiple of num_key_value_heads, {config.num_kv_heads}",
        )
    if config.head_dim % 2:
        raise keys.wrong("head_dim", config.head_dim, "an even number")
    if config.mask_token_id >= config.vocab_size:
        raise keys.wrong(
            "mask_token_id", config.mask_token_id, f"below {config.vocab_size}"
        )
    if config.version == 2 and config.hidden_size % config.conv_group_size:
        raise keys.wrong(
            "conv_group_size",
            config.conv_group_size,
            f"a divisor of hidden_size, {config.hidden_size}",
        )
    if config.selector_top_k > config.vocab_size:
        raise keys.wrong(
            "selector_top_k", config.selector_top_k, f"at most {config.vocab_size}"
        )
