# SPDX-License-Identifier: Apache-2.0
"""A GGUF file becomes a target mlx-lm loads as its own.

``mx.load`` unpacks the blocks of Q4_0, Q4_1 and Q8_0 into affine arrays of group 32
without changing a value. What is left is a change of names, the order of query and
key rows, and the configuration, which GGUF keeps as metadata.

Row order: llama.cpp stores the two halves of each rotary pair of a ``llama`` next to
each other (row 2i and 2i+1 of a head); Hugging Face and mlx-lm store all first halves,
then all second halves (row i and i + d/2). ``qwen3`` files keep the latter order.

Shapes: N rows of a head times heads, d rows of one head.
Source of names and metadata keys: the GGUF specification of ggml-org/ggml.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import mlx.core as mx

from splashpy.errors import IntegrityError, ModelKindError
from splashpy.packing.gguf_metadata import Metadata
from splashpy.packing.gguf_tokenizer import special_ids, token_config, tokenizer_files
from splashpy.packing.target_files import TargetParts

GROUP_SIZE = 32
"""Weights that share one scale in every block format ``mx.load`` unpacks."""

_FILE_TYPES = {0: "F32", 1: "F16", 2: "Q4_0", 3: "Q4_1", 7: "Q8_0"}
"""``general.file_type`` values whose matrices keep their values unchanged."""

_CLASSES = {"llama": "LlamaForCausalLM", "qwen3": "Qwen3ForCausalLM"}

_WHOLE = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "output": "lm_head",
}

_LAYER = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}

_NAME = re.compile(r"(?:blk\.(\d+)\.)?(\w+)\.(weight|scales|biases)")


def read_gguf(path: Path) -> TargetParts:
    """Read a whole GGUF file.

    Raises:
        IntegrityError: the file cannot be parsed.
        ModelKindError: an architecture, block format, tensor or tokenizer that is not
            supported; names it.
    """
    try:
        loaded: Any = mx.load(str(path), format="gguf", return_metadata=True)
    except (RuntimeError, ValueError) as error:
        raise IntegrityError(
            f"{path}: cannot be read as GGUF", why=str(error)
        ) from None
    arrays, raw = loaded
    metadata = Metadata(raw, path.name)
    config = _config(metadata, tied="output.weight" not in arrays)
    weights = _weights(arrays, config, path.name)
    if packed := _quantization(weights, path.name):
        config["quantization"] = packed
    eos, special = special_ids(metadata)
    config |= token_config(metadata)
    return TargetParts(
        weights=weights,
        config=config,
        tokenizer=tokenizer_files(metadata, config["max_position_embeddings"]),
        eos_token_ids=eos,
        special=special,
    )


def restore_halves(rows: mx.array, heads: int) -> mx.array:
    """Undo llama.cpp's order of rotary rows.

    Args:
        rows: [N, ...] with the halves of each pair next to each other.
        heads: heads the N rows belong to.

    Returns:
        [N, ...] with, in each head, all first halves before all second halves.
    """
    count, *rest = rows.shape
    pairs = rows.reshape(heads, count // heads // 2, 2, *rest)
    return pairs.swapaxes(1, 2).reshape(count, *rest)


def _config(metadata: Metadata, *, tied: bool) -> dict[str, Any]:
    kind = metadata.text("general.architecture")
    if kind not in _CLASSES:
        raise ModelKindError(
            f"{metadata.file}: architecture {kind!r} is not supported",
            why=f"supported in GGUF files: {', '.join(_CLASSES)}",
        )
    _check_file_type(metadata)
    if metadata.has(f"{kind}.rope.scaling.type"):
        raise ModelKindError(f"{metadata.file}: scaled rotary positions in GGUF")
    heads = metadata.integer(f"{kind}.attention.head_count")
    hidden = metadata.integer(f"{kind}.embedding_length")
    return {
        "architectures": [_CLASSES[kind]],
        "model_type": kind,
        "hidden_size": hidden,
        "intermediate_size": metadata.integer(f"{kind}.feed_forward_length"),
        "num_hidden_layers": metadata.integer(f"{kind}.block_count"),
        "num_attention_heads": heads,
        "num_key_value_heads": metadata.integer(
            f"{kind}.attention.head_count_kv", default=heads
        ),
        "head_dim": metadata.integer(
            f"{kind}.attention.key_length", default=hidden // heads
        ),
        "vocab_size": metadata.count("tokenizer.ggml.tokens"),
        "max_position_embeddings": metadata.integer(f"{kind}.context_length"),
        "rms_norm_eps": metadata.number(f"{kind}.attention.layer_norm_rms_epsilon"),
        "rope_theta": metadata.number(f"{kind}.rope.freq_base", default=10000.0),
        "rope_traditional": False,
        "hidden_act": "silu",
        "attention_bias": False,
        "mlp_bias": False,
        "tie_word_embeddings": tied,
        "torch_dtype": "float16",
    }


def _check_file_type(metadata: Metadata) -> None:
    file_type = metadata.integer("general.file_type", default=1)
    if file_type not in _FILE_TYPES:
        raise ModelKindError(
            f"{metadata.file}: GGUF file type {file_type} is not supported",
            why=f"supported: {', '.join(_FILE_TYPES.values())}",
        )


def _weights(
    arrays: dict[str, mx.array], config: dict[str, Any], file: str
) -> dict[str, mx.array]:
    weights = {}
    for name, array in arrays.items():
        match = _NAME.fullmatch(name)
        layer, stem, part = match.groups() if match else (None, "", "")
        new = (_WHOLE if layer is None else _LAYER).get(stem)
        if new is None:
            raise ModelKindError(f"{file}: tensor {name} has no place in this model")
        if config["model_type"] == "llama" and stem in ("attn_q", "attn_k"):
            key = "num_attention_heads" if stem == "attn_q" else "num_key_value_heads"
            array = restore_halves(array, config[key])
        prefix = "" if layer is None else f"model.layers.{layer}."
        weights[f"{prefix}{new}.{part}"] = _as_stored(array)
    return weights


def _as_stored(array: mx.array) -> mx.array:
    """Norms come as float32; float16 holds them exactly or they stay as they are.

    One float32 weight would make mlx-lm compute everything after it in float32.
    """
    if array.dtype != mx.float32:
        return array
    half = array.astype(mx.float16)
    return half if mx.array_equal(half.astype(mx.float32), array) else array


def _quantization(weights: dict[str, mx.array], file: str) -> dict[str, Any]:
    """The ``quantization`` object of config.json; empty for unpacked weights.

    The bits most modules have are the default, the others are listed by name.
    """
    bits: dict[str, int] = {}
    for name, scales in weights.items():
        if name.endswith(".scales"):
            module = name.removesuffix(".scales")
            words = weights[f"{module}.weight"].shape[-1]
            bits[module] = words * 32 // (scales.shape[-1] * GROUP_SIZE)
    if not bits:
        return {}
    if not set(bits.values()) <= {4, 8}:
        raise ModelKindError(f"{file}: packed with {sorted(set(bits.values()))} bits")
    counts = list(bits.values())
    usual = max(sorted(set(counts)), key=counts.count)
    overrides = {
        module: {"group_size": GROUP_SIZE, "bits": bits[module]}
        for module in sorted(bits)
        if bits[module] != usual
    }
    return {"group_size": GROUP_SIZE, "bits": usual, "mode": "affine", **overrides}
