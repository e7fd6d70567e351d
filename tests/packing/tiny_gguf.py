# SPDX-License-Identifier: Apache-2.0
"""A random two-layer model with a byte-level tokenizer, as a GGUF file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from packing.gguf_writer import Packed, pack, write_gguf
from tokenizers.pre_tokenizers import ByteLevel

HIDDEN, HEADS, KV_HEADS, MLP, LAYERS = 64, 4, 2, 96, 2
SPECIAL = ["<|end|>", "<|start|>"]
FILE_TYPES = {"F16": 1, "Q4_0": 2, "Q4_1": 3, "Q8_0": 7}


@dataclass
class TinyGguf:
    """Parts of a file, to be changed by a test before ``write``.

    Attributes:
        metadata, tensors: what is written.
        values: what each tensor means, float32, in the order of the file.
    """

    metadata: dict[str, Any]
    tensors: dict[str, Packed]
    values: dict[str, np.ndarray]

    def write(self, path: Path) -> Path:
        write_gguf(path, self.metadata, self.tensors)
        return path


def tiny_gguf(kind: str = "llama", packed: str = "Q4_1") -> TinyGguf:
    """A model of architecture ``llama`` or ``qwen3`` with matrices of one format."""
    tokens = [*SPECIAL, *sorted(ByteLevel.alphabet()), "Ġa", "th"]
    metadata: dict[str, Any] = {
        "general.architecture": kind,
        "general.file_type": FILE_TYPES[packed],
        f"{kind}.embedding_length": HIDDEN,
        f"{kind}.feed_forward_length": MLP,
        f"{kind}.block_count": LAYERS,
        f"{kind}.attention.head_count": HEADS,
        f"{kind}.attention.head_count_kv": KV_HEADS,
        f"{kind}.attention.layer_norm_rms_epsilon": 1e-5,
        f"{kind}.context_length": 128,
        f"{kind}.rope.freq_base": 10000.0,
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "smollm" if kind == "llama" else "qwen2",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": [3, 3] + [1] * (len(tokens) - 2),
        "tokenizer.ggml.merges": ["Ġ a", "t h"],
        "tokenizer.ggml.eos_token_id": 0,
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.chat_template": "{% for m in messages %}{{ m.content }}{% endfor %}",
    }
    tiny = TinyGguf(metadata, {}, {})
    random = np.random.default_rng(7)

    def add(name: str, *shape: int, form: str = packed) -> None:
        values = random.normal(scale=0.3, size=shape)
        values = values + 1 if len(shape) == 1 else values
        tiny.tensors[f"{name}.weight"], meant = pack(form, values)
        tiny.values[f"{name}.weight"] = meant

    # As in published files, the embedding is packed less tightly than the rest.
    add("token_embd", len(tokens), HIDDEN, form="F16" if packed == "F16" else "Q8_0")
    add("output_norm", HIDDEN, form="F32")
    head = HIDDEN // HEADS
    for layer in range(LAYERS):
        prefix = f"blk.{layer}"
        add(f"{prefix}.attn_q", HIDDEN, HIDDEN)
        add(f"{prefix}.attn_k", KV_HEADS * head, HIDDEN)
        add(f"{prefix}.attn_v", KV_HEADS * head, HIDDEN)
        add(f"{prefix}.attn_output", HIDDEN, HIDDEN)
        add(f"{prefix}.ffn_gate", MLP, HIDDEN)
        add(f"{prefix}.ffn_up", MLP, HIDDEN)
        add(f"{prefix}.ffn_down", HIDDEN, MLP)
        for norm in ("attn_norm", "ffn_norm"):
            add(f"{prefix}.{norm}", HIDDEN, form="F32")
        if kind == "qwen3":
            for norm in ("attn_q_norm", "attn_k_norm"):
                add(f"{prefix}.{norm}", head, form="F32")
    return tiny
