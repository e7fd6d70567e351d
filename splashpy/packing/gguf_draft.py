# SPDX-License-Identifier: Apache-2.0
"""A drafter in GGUF (architecture ``dflash`` of llama.cpp) under its published names.

Both versions have the same architecture there; a selector makes it DFlash 2. llama.cpp
counts target layers from one, and their list is stored so.

Source of names and keys: llama.cpp's conversion of DFlash checkpoints.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from splashpy.errors import ModelKindError
from splashpy.models.dflash2_parse import parse_config
from splashpy.package.weights.safetensors_file import Entry
from splashpy.package.weights.tensor import Tensor
from splashpy.packing.draft_plan import PlannedDraft, plan_draft_tensors
from splashpy.packing.gguf_blocks import plain, plain_dtype
from splashpy.packing.gguf_file import GgufFile, GgufTensor, check_layers
from splashpy.packing.gguf_metadata import Metadata

ARCHITECTURE = "dflash"

_SELECTOR = "candidate_selector."
_WHOLE = {
    "fc.weight": "fc.weight",
    "enc.output_norm.weight": "hidden_norm.weight",
    "output_norm.weight": "norm.weight",
    "selector_predecessor.weight": f"{_SELECTOR}predecessor_codebook",
    "selector_successor.weight": f"{_SELECTOR}successor_codebook",
    "selector_hidden.weight": f"{_SELECTOR}hidden_projection.weight",
    # Spellings of early files.
    "selector.pred_codebook": f"{_SELECTOR}predecessor_codebook",
    "selector.succ_codebook": f"{_SELECTOR}successor_codebook",
    "selector.hidden_proj.weight": f"{_SELECTOR}hidden_projection.weight",
}
_LAYER = {
    "attn_norm.weight": "input_layernorm.weight",
    "ffn_norm.weight": "post_attention_layernorm.weight",
    "attn_q.weight": "self_attn.q_proj.weight",
    "attn_k.weight": "self_attn.k_proj.weight",
    "attn_v.weight": "self_attn.v_proj.weight",
    "attn_output.weight": "self_attn.o_proj.weight",
    "attn_q_norm.weight": "self_attn.q_norm.weight",
    "attn_k_norm.weight": "self_attn.k_norm.weight",
    "ffn_gate.weight": "mlp.gate_proj.weight",
    "ffn_up.weight": "mlp.up_proj.weight",
    "ffn_down.weight": "mlp.down_proj.weight",
    "attn_conv_base": "attention_conv.base_kernel",
    "attn_conv_proj.weight": "attention_conv.kernel_projection.weight",
    "ffn_conv_base": "mlp_conv.base_kernel",
    "ffn_conv_proj.weight": "mlp_conv.kernel_projection.weight",
    # Spellings of early files.
    "attn_conv.base": "attention_conv.base_kernel",
    "attn_conv.proj.weight": "attention_conv.kernel_projection.weight",
    "ffn_conv.base": "mlp_conv.base_kernel",
    "ffn_conv.proj.weight": "mlp_conv.kernel_projection.weight",
}
_NAME = re.compile(r"blk\.([0-9]+)\.(.+)")


def plan_gguf_draft(path: Path, bits: int | None) -> PlannedDraft:
    """Plan the drafter in a file; blocks are expanded, and packed as wished.

    Args:
        path: one GGUF file.
        bits: 4 or 8 packs the matrices, 16 or None keeps them as numbers.

    Raises:
        IntegrityError: the file cannot be parsed.
        ModelKindError: not a drafter, or a tensor or key that is not supported.
    """
    file = GgufFile.open(path)
    config = _config(file)
    parse_config(config, str(path))
    tensors = _Tensors(path.name, file.tensors)
    return plan_draft_tensors(config, tensors, tensors.entries, bits, str(path))


class _Tensors(Mapping[str, Tensor]):
    """Tensors by published name."""

    def __init__(self, file: str, tensors: Mapping[str, GgufTensor]):
        self._tensors = {_published(file, name): t for name, t in tensors.items()}
        if len(self._tensors) != len(tensors):
            raise ModelKindError(f"{file}: two tensors have the same meaning")

    @property
    def entries(self) -> dict[str, Entry]:
        return {
            name: (plain_dtype(tensor.kind), tensor.shape)
            for name, tensor in self._tensors.items()
        }

    def __getitem__(self, name: str) -> Tensor:
        return plain(self._tensors[name], name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._tensors)

    def __len__(self) -> int:
        return len(self._tensors)


def _published(file: str, name: str) -> str:
    match = _NAME.fullmatch(name)
    new = _LAYER.get(match[2]) if match else _WHOLE.get(name)
    if new is None:
        raise ModelKindError(f"{file}: tensor {name} has no place in a drafter")
    return f"layers.{match[1]}.{new}" if match else new


def _config(file: GgufFile) -> dict[str, Any]:
    """config.json of the drafter, from the metadata."""
    metadata = file.metadata
    kind = metadata.text("general.architecture")
    if kind != ARCHITECTURE:
        raise ModelKindError(
            f"{metadata.file}: architecture {kind!r} is no drafter",
            why=f"drafters in GGUF have {ARCHITECTURE!r}",
        )
    own = _Own(metadata)
    layers = own.integer("block_count")
    check_layers(file, layers)
    version2 = own.integer("selector_top_k", default=0) > 0
    heads = own.integer("attention.head_count")
    return {
        "architectures": ["DFlash2DraftModel" if version2 else "DFlashDraftModel"],
        "model_type": "qwen3",
        "hidden_size": own.integer("embedding_length"),
        "num_hidden_layers": layers,
        "intermediate_size": own.integer("feed_forward_length"),
        "num_attention_heads": heads,
        "num_key_value_heads": own.integer("attention.head_count_kv", default=heads),
        "head_dim": own.integer("attention.key_length"),
        "vocab_size": _vocabulary(file),
        "rms_norm_eps": own.number("attention.layer_norm_rms_epsilon"),
        "max_position_embeddings": own.integer("context_length"),
        "hidden_act": "silu",
        "attention_bias": False,
        "tie_word_embeddings": False,
        "is_causal": own.boolean("attention.causal", default=False),
        **_windows(own, layers),
        "rope_parameters": {
            "rope_type": "default",
            "rope_theta": own.number("rope.freq_base", default=10000.0),
        },
        "dflash_config": _dflash(own, metadata, version2=version2),
    }


class _Own:
    """The keys below the architecture's name."""

    def __init__(self, metadata: Metadata):
        self._metadata = metadata

    def has(self, key: str) -> bool:
        return self._metadata.has(f"{ARCHITECTURE}.{key}")

    def integer(self, key: str, *, default: int | None = None) -> int:
        return self._metadata.integer(f"{ARCHITECTURE}.{key}", default=default)

    def number(self, key: str, *, default: float | None = None) -> float:
        return self._metadata.number(f"{ARCHITECTURE}.{key}", default=default)

    def boolean(self, key: str, *, default: bool) -> bool:
        return self._metadata.boolean(f"{ARCHITECTURE}.{key}", default=default)

    def integers(self, key: str) -> list[int]:
        return self._metadata.integers(f"{ARCHITECTURE}.{key}")

    def booleans(self, key: str) -> list[bool]:
        return self._metadata.booleans(f"{ARCHITECTURE}.{key}")


def _dflash(own: _Own, metadata: Metadata, *, version2: bool) -> dict[str, Any]:
    layers = own.integers("target_layers")
    if not layers or min(layers) < 1:
        raise ModelKindError(
            f"{metadata.file}: {ARCHITECTURE}.target_layers is {layers}",
            why="llama.cpp counts target layers from one",
        )
    facts: dict[str, Any] = {
        "block_size": own.integer("block_size", default=16),
        "mask_token_id": metadata.integer("tokenizer.ggml.mask_token_id"),
        "target_layer_ids": [layer - 1 for layer in layers],
    }
    if version2:
        for key in ("conv_kernel_size", "conv_group_size", "selector_rank"):
            facts[key] = own.integer(key)
        facts["selector_top_k"] = own.integer("selector_top_k")
    if own.has("logit_scale"):
        facts["output_multiplier"] = own.number("logit_scale")
    if own.has("final_logit_softcapping"):
        facts["final_logit_softcapping"] = own.number("final_logit_softcapping")
    return facts


def _windows(own: _Own, layers: int) -> dict[str, Any]:
    window = own.integer("attention.sliding_window", default=0)
    if not window:
        return {"layer_types": ["full_attention"] * layers}
    sliding = [True] * layers
    if own.has("attention.sliding_window_pattern"):
        sliding = own.booleans("attention.sliding_window_pattern")
    kinds = {True: "sliding_attention", False: "full_attention"}
    return {
        "sliding_window": window,
        "layer_types": [kinds[slides] for slides in sliding],
    }


def _vocabulary(file: GgufFile) -> int:
    """Rows of the codebooks; version 1 has the tokenizer's tokens alone."""
    for name in ("selector_predecessor.weight", "selector.pred_codebook"):
        if name in file.tensors and file.tensors[name].shape:
            return file.tensors[name].shape[0]
    return file.metadata.count("tokenizer.ggml.tokens")
