# SPDX-License-Identifier: Apache-2.0
"""A GGUF file becomes a target mlx-lm loads as its own.

Blocks that are affine codes keep their values; all others are expanded and packed
anew. What is left is a change of names, the order of query and key rows, and the
configuration, which GGUF keeps as metadata.

Row order: llama.cpp stores the two halves of each rotary pair of a ``llama`` next to
each other (row 2i and 2i+1 of a head); Hugging Face and mlx-lm store all first halves,
then all second halves (row i and i + d/2). ``qwen3`` files keep the latter order.

Shapes: N rows of a head times heads, d rows of one head.
Source of names and metadata keys: the GGUF specification of ggml-org/ggml.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from splashpy.errors import ModelKindError
from splashpy.models.arrays import to_mlx
from splashpy.package.weights.safetensors_file import Entry
from splashpy.package.weights.tensor import Tensor
from splashpy.packing.gguf_blocks import AFFINE, affine, plain, plain_dtype
from splashpy.packing.gguf_file import GgufFile, GgufTensor, check_layers
from splashpy.packing.gguf_metadata import Metadata
from splashpy.packing.gguf_tokenizer import special_ids, token_config, tokenizer_files
from splashpy.packing.quantize_on_demand import (
    Packing,
    QuantizeOnDemand,
    packed_entries,
)
from splashpy.packing.shards import Shards
from splashpy.packing.target_files import TargetParts
from splashpy.packing.target_plan import (
    PackingWish,
    PlannedTarget,
    choose,
    quantization_object,
    refuse_again,
)

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

_NAME = re.compile(r"(?:blk\.([0-9]+)\.)?(\w+)\.weight")
_COMPARED_VALUES = 1 << 20  # at once: a few MiB beside the tensor


def plan_gguf(path: Path, wish: PackingWish) -> PlannedTarget:
    """Plan the target in a file.

    Args:
        path: one GGUF file.
        wish: how to pack what is not packed in a way that can be kept.

    Raises:
        IntegrityError: the file cannot be parsed.
        ModelKindError: an architecture, block format, tensor or tokenizer that is not
            supported; names it.
        UsageError: all of it is packed already, and another packing was wished.
    """
    target = _open(path)
    config, weights = target.config, target.weights
    kept = weights.packings
    if kept and not weights.expandable:
        config["quantization"] = _of_kept(kept)
        refuse_again(path, config["quantization"], wish)
        chosen: dict[str, Packing] = {}
    else:
        chosen = choose(weights.expandable, wish)
        config["quantization"] = quantization_object(
            {**kept, **chosen}, wish.everywhere
        )
    return PlannedTarget(
        config=config | target.token_ids,
        shards=Shards(
            packed_entries(weights.entries, chosen), QuantizeOnDemand(weights, chosen)
        ),
        tokenizer=target.tokenizer,
        eos_token_ids=target.eos_token_ids,
        special=target.special,
        cache_kinds=("kv",) * config["num_hidden_layers"],
        changed=bool(chosen),
    )


def read_gguf(path: Path) -> TargetParts:
    """Read a whole file whose values can all be kept, for a recipe.

    Raises:
        IntegrityError: the file cannot be parsed.
        ModelKindError: as :func:`plan_gguf`, or a block format whose values change.
    """
    target = _open(path)
    weights, config = target.weights, target.config
    if expanded := weights.expanded:
        raise ModelKindError(
            f"{path.name}: blocks of type {expanded} do not keep their values",
            why=f"supported: F32, F16, BF16, {', '.join(AFFINE)}",
        )
    if weights.packings:
        config["quantization"] = _of_kept(weights.packings)
    return TargetParts(
        weights={name: to_mlx(weights[name]) for name in weights.entries},
        config=config | target.token_ids,
        tokenizer=target.tokenizer,
        eos_token_ids=target.eos_token_ids,
        special=target.special,
    )


@dataclass(frozen=True, slots=True)
class _GgufTarget:
    """What a file says; ``token_ids`` stand at the end of config.json."""

    config: dict[str, Any]
    token_ids: dict[str, Any]
    weights: GgufWeights
    tokenizer: dict[str, bytes]
    eos_token_ids: tuple[int, ...]
    special: dict[str, int]


def _open(path: Path) -> _GgufTarget:
    file = GgufFile.open(path)
    metadata = file.metadata
    config = _config(metadata, tied="output.weight" not in file.tensors)
    eos, special = special_ids(metadata)
    return _GgufTarget(
        config,
        token_config(metadata),
        GgufWeights(_renamed(file, config)),
        tokenizer_files(metadata, config["max_position_embeddings"]),
        eos,
        special,
    )


class GgufWeights(Mapping[str, Tensor]):
    """The tensors of a file under mlx-lm's names; each can be had once.

    Attributes:
        entries: types and shapes.
        packings: modules whose codes are kept, and how they are packed.
    """

    def __init__(self, modules: Mapping[str, tuple[GgufTensor, int]]):
        """Nothing is read yet.

        Args:
            modules: name without ``.weight`` to tensor and, where rotary rows must be
                put back in order, the number of heads (else 0).
        """
        self._modules = modules
        self._ready: dict[str, Tensor] = {}
        self.entries: dict[str, Entry] = {}
        self.packings: dict[str, Packing] = {}
        for module, (tensor, _) in modules.items():
            dtype = _stored_dtype(tensor)
            entries = {f"{module}.weight": (dtype, tensor.shape)}
            if packing := AFFINE.get(tensor.kind):
                self.packings[module] = packing
                entries[f"{module}.weight"] = "F16", tensor.shape
                entries = packed_entries(entries, {module: packing})
            self.entries |= entries

    @property
    def expandable(self) -> dict[str, tuple[int, bool]]:
        """Matrices whose codes are not kept, as ``choose`` takes them."""
        return {
            module: (tensor.shape[-1], True)
            for module, (tensor, _) in self._modules.items()
            if module not in self.packings and len(tensor.shape) > 1
        }

    @property
    def expanded(self) -> str:
        """A type of block that is not kept; empty when there is none."""
        kinds = {tensor.kind for tensor, _ in self._modules.values()}
        return next(iter(sorted(kinds - {*AFFINE, "F32", "F16", "BF16"})), "")

    def __getitem__(self, name: str) -> Tensor:
        """A tensor."""
        if name not in self._ready:
            self._ready |= self._read(name.rpartition(".")[0])
        return self._ready.pop(name)

    def __iter__(self) -> Iterator[str]:
        """Names."""
        return iter(self.entries)

    def __len__(self) -> int:
        """How many tensors there are."""
        return len(self.entries)

    def _read(self, module: str) -> dict[str, Tensor]:
        tensor, heads = self._modules[module]
        if module in self.packings:
            packed = affine(tensor, module)
            planes = {
                "weight": packed.weight,
                "scales": packed.scales,
                "biases": packed.biases,
            }
        else:
            planes = {"weight": _as_stored(plain(tensor, module))}
        return {
            f"{module}.{plane}": Tensor(t.dtype, restore_halves(t.data, heads))
            if heads
            else t
            for plane, t in planes.items()
        }


def restore_halves(rows: np.ndarray, heads: int) -> np.ndarray:
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
    if metadata.has(f"{kind}.rope.scaling.type"):
        raise ModelKindError(f"{metadata.file}: scaled rotary positions in GGUF")
    heads = metadata.integer(f"{kind}.attention.head_count", low=1)
    hidden = metadata.integer(f"{kind}.embedding_length", low=1)
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


def _renamed(
    file: GgufFile, config: dict[str, Any]
) -> dict[str, tuple[GgufTensor, int]]:
    """Tensors by module of mlx-lm, with the heads whose rows must change places."""
    modules: dict[str, tuple[GgufTensor, int]] = {}
    name_of_file = file.metadata.file
    check_layers(file, config["num_hidden_layers"])
    for name, tensor in file.tensors.items():
        match = _NAME.fullmatch(name)
        layer, stem = match.groups() if match else (None, "")
        new = (_WHOLE if layer is None else _LAYER).get(stem)
        if new is None:
            raise ModelKindError(
                f"{name_of_file}: tensor {name} has no place in this model"
            )
        heads = 0
        if config["model_type"] == "llama" and stem in ("attn_q", "attn_k"):
            key = "num_attention_heads" if stem == "attn_q" else "num_key_value_heads"
            heads = config[key]
            if not tensor.shape or heads < 1 or tensor.shape[0] % (2 * heads):
                raise ModelKindError(
                    f"{name_of_file}: {name} has shape {list(tensor.shape)}",
                    why=f"its rows do not divide among {heads} heads",
                )
        prefix = "" if layer is None else f"model.layers.{layer}."
        modules[f"{prefix}{new}"] = tensor, heads
    return modules


def _stored_dtype(tensor: GgufTensor) -> str:
    if tensor.kind != "F32":
        return plain_dtype(tensor.kind)
    return _as_stored(plain(tensor, "")).dtype


def _as_stored(tensor: Tensor) -> Tensor:
    """Norms come as float32; float16 holds them exactly or they stay as they are.

    One float32 weight would make mlx-lm compute everything after it in float32.
    """
    if tensor.dtype != "F32":
        return tensor
    half = np.empty(tensor.shape, np.float16)
    narrow, wide = half.reshape(-1), tensor.data.reshape(-1)
    for start in range(0, wide.size, _COMPARED_VALUES):
        part = slice(start, start + _COMPARED_VALUES)
        with np.errstate(over="ignore"):
            narrow[part] = wide[part]
        if not np.array_equal(narrow[part].astype(np.float32), wide[part]):
            return tensor
    return Tensor("F16", half)


def _of_kept(packings: Mapping[str, Packing]) -> dict[str, Any]:
    """The ``quantization`` of config.json: what most modules have is the usual."""
    counts = list(packings.values())
    usual = max(sorted(set(counts), key=lambda p: p.bits), key=counts.count)
    return quantization_object(packings, usual)
