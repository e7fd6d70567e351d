# SPDX-License-Identifier: Apache-2.0
"""mlx-lm's own model on the rows of a GGUF file as they are stored.

For ``llama`` it rotates neighbouring rows (``rope_traditional``), so it needs no change
of row order. Names are written out again here: a wrong name in the reader is seen.
"""

from __future__ import annotations

from typing import Any

import mlx.core as mx
from mlx_lm.models import llama, qwen3

LAYER = {
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
WHOLE = {"token_embd": "model.embed_tokens", "output_norm": "model.norm"}


def reference_model(sizes: dict[str, Any], values: dict[str, mx.array]) -> Any:
    """A model with tied head.

    Args:
        sizes: mlx-lm's names for the architecture's numbers, ``model_type`` included.
        values: the file's tensor names to float32 arrays.
    """
    kind = sizes["model_type"]
    module = llama if kind == "llama" else qwen3
    traditional = {"rope_traditional": True} if kind == "llama" else {}
    model = module.Model(module.ModelArgs.from_dict({**sizes, **traditional}))
    weights = []
    for name, value in values.items():
        *block, stem, _ = name.split(".")
        prefix = f"model.layers.{block[1]}." if block else ""
        new = LAYER[stem] if block else WHOLE[stem]
        weights.append((f"{prefix}{new}.weight", value))
    model.load_weights(weights, strict=True)
    return model


def dequantized(arrays: dict[str, mx.array]) -> dict[str, mx.array]:
    """What ``mx.load`` of a GGUF file gives, unpacked to float32."""
    values = {}
    for name, array in arrays.items():
        stem = name.removesuffix(".weight")
        if f"{stem}.scales" in arrays:
            scales, biases = arrays[f"{stem}.scales"], arrays[f"{stem}.biases"]
            bits = array.shape[-1] * 32 // (scales.shape[-1] * 32)
            array = mx.dequantize(
                array,
                scales.astype(mx.float32),
                biases.astype(mx.float32),
                group_size=32,
                bits=bits,
            )
        if stem != name:
            values[name] = array.astype(mx.float32)
    return values
