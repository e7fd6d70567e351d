# SPDX-License-Identifier: Apache-2.0
"""Tiny random targets and scripted drafters: real networks that run in milliseconds."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx.nn as nn
from mlx.utils import tree_flatten, tree_map, tree_map_with_path
from mlx_lm.utils import _get_classes
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from splashpy.drafting.drafter import DraftSampling, Proposal, empty_proposal
from splashpy.models.architecture import find_backbone, find_text_model
from splashpy.models.dflash2 import DFlashNetwork
from splashpy.models.dflash2_parse import parse_config
from splashpy.models.loading import make_target
from splashpy.models.target import MlxLmTarget

CHATML = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' "
    "+ message['content'] + '<|im_end|>' + '\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)
VOCAB = 260  # 256 bytes, padding up to a multiple of the quantization group aside

_DELTA = {
    "linear_num_value_heads": 4,
    "linear_num_key_heads": 2,
    "linear_key_head_dim": 32,
    "linear_value_head_dim": 32,
    "linear_conv_kernel_dim": 4,
    "full_attention_interval": 4,
}
_ROUTED = {
    "num_experts": 4,
    "num_experts_per_tok": 2,
    "decoder_sparse_step": 1,
    "moe_intermediate_size": 32,
    "norm_topk_prob": True,
}
_LATENT = {
    "moe_intermediate_size": 32,
    "n_routed_experts": 4,
    "n_shared_experts": 1,
    "num_experts_per_tok": 2,
    "routed_scaling_factor": 1.0,
    "kv_lora_rank": 16,
    "q_lora_rank": 24,
    "qk_rope_head_dim": 8,
    "qk_nope_head_dim": 16,
    "v_head_dim": 16,
    "topk_method": "noaux_tc",
    "scoring_func": "sigmoid",
    "norm_topk_prob": True,
    "n_group": 1,
    "topk_group": 1,
    "moe_layer_freq": 1,
    "first_k_dense_replace": 1,
    "attention_bias": False,
}
_WINDOWED = ["sliding_attention", "full_attention"] * 2

FAMILIES: dict[str, dict[str, Any]] = {
    "llama": {},
    "qwen3": {},
    "qwen3_moe": {**_ROUTED, "mlp_only_layers": [1]},
    "qwen3_5": {
        **_DELTA,
        "rope_parameters": {
            "rope_type": "default",
            "rope_theta": 10000.0,
            "partial_rotary_factor": 0.5,
        },
    },
    "qwen3_5_moe": {**_DELTA, **_ROUTED, "shared_expert_intermediate_size": 32},
    "qwen3_next": {
        **_DELTA,
        **_ROUTED,
        "shared_expert_intermediate_size": 32,
        "mlp_only_layers": [0],
        "partial_rotary_factor": 0.5,
    },
    "gemma4": {
        "sliding_window": 8,
        "layer_types": _WINDOWED,
        "global_head_dim": 32,
        "num_kv_shared_layers": 0,
        "hidden_size_per_layer_input": 0,
        "final_logit_softcapping": 3.0,
        "tie_word_embeddings": True,
    },
    "gpt_oss": {
        "num_local_experts": 4,
        "num_experts_per_tok": 2,
        "sliding_window": 8,
        "layer_types": _WINDOWED,
    },
    "muse_glimmer": {"sliding_window": 8},
    "glm_moe_dsa": {
        **_LATENT,
        "index_head_dim": 16,
        "index_n_heads": 2,
        "index_topk": 24,
        "rope_parameters": {"rope_theta": 10000.0},
    },
    "minimax": {
        "num_local_experts": 4,
        "num_experts_per_tok": 2,
        "shared_intermediate_size": 32,
        "rotary_dim": 8,
    },
    "kimi_k25": _LATENT,
}
"""What a configuration needs beyond a llama's, for every kind of target."""

WIDE = {"head_dim": 64, "global_head_dim": 64}
"""Changes of a configuration that let its rows be kept in 8 bits."""

MEMORIES = (*FAMILIES, "llama-q8", "qwen3_5-q8", "gemma4-q8", "gpt_oss-q8")
"""Every kind of target, and the same for some with rows in 8 bits."""

_NESTED = ("gemma4", "kimi_k25")  # their text model has a configuration of its own


def config(model_type: str = "llama", **changes: Any) -> dict[str, Any]:
    flat = _flat_config(model_type, **{**FAMILIES.get(model_type, {}), **changes})
    if model_type not in _NESTED:
        return flat
    return {**flat, "text_config": dict(flat)}


def _flat_config(model_type: str, **changes: Any) -> dict[str, Any]:
    return {
        "model_type": model_type,
        "architectures": ["TinyForCausalLM"],
        "hidden_size": 64,
        "num_hidden_layers": 4,
        "intermediate_size": 96,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "rms_norm_eps": 1e-5,
        "vocab_size": VOCAB,
        "max_position_embeddings": 512,
        "rope_theta": 10000.0,
        "tie_word_embeddings": False,
        **changes,
    }


def model(model_type: str = "llama", *, seed: int = 0, **changes: Any) -> nn.Module:
    model_class, args_class = _get_classes(config(model_type, **changes))
    network = model_class(args_class.from_dict(config(model_type, **changes)))
    keys = iter(mx.random.split(mx.random.key(seed), 4096))
    # Wider than the usual initialisation: argmax gaps far above float rounding.
    network.update(
        tree_map_with_path(
            lambda name, a: (
                mx.random.normal(a.shape, key=next(keys)) * 0.25
                if a.ndim > 1
                else _level(name) + 0.1 * mx.random.normal(a.shape, key=next(keys))
            ),
            network.parameters(),
        )
    )
    network.eval()
    mx.eval(network.parameters())
    return network


def _level(name: str) -> float:
    """Around 1, but a recurrent state shall remember more than a few rows."""
    return -2.0 if name.endswith("A_log") else 1.0


def target(model_type: str = "llama", *, seed: int = 0, **changes: Any) -> MlxLmTarget:
    return target_of(model(model_type, seed=seed, **changes), model_type)


def target_of(network: nn.Module, model_type: str) -> MlxLmTarget:
    return make_target(network, model_type, 512, 0)


def write_tokenizer(directory: Path) -> None:
    """A byte-level tokenizer without merges: every character may span tokens."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(
        models.BPE(vocab={char: i for i, char in enumerate(alphabet)}, merges=[])
    )
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(
        [
            AddedToken(token, special=True, normalized=False)
            for token in ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
        ]
    )
    directory.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(directory / "tokenizer.json"))
    (directory / "tokenizer_config.json").write_text(
        json.dumps({"eos_token": "<|im_end|>", "chat_template": CHATML})
    )


def write_model(directory: Path, model_type: str = "llama", **changes: Any) -> Path:
    """A directory mlx-lm can load: config, weights, tokenizer, template."""
    return _write(
        directory, model(model_type, **changes), config(model_type, **changes)
    )


def write_terse(
    directory: Path, model_type: str, *, words: int = 3, **changes: Any
) -> Path:
    """As :func:`write_model`, but it says ``words`` different tokens only.

    A drafter borrows its head, so a random one is now and then right.
    """
    network = model(model_type, **changes)
    head = find_text_model(network).lm_head
    ids = mx.arange(head.weight.shape[0])
    said = (ids >= 70) & (ids < 70 + words)
    head.weight = mx.where(said[:, None], 4 * head.weight, 0)
    return _write(directory, network, config(model_type, **changes))


def _write(directory: Path, network: nn.Module, config: dict[str, Any]) -> Path:
    write_tokenizer(directory)
    weights = dict(tree_flatten(network.parameters()))
    mx.save_safetensors(str(directory / "model.safetensors"), weights)
    (directory / "config.json").write_text(json.dumps(config))
    return directory


def write_teachable(
    directory: Path, share: float = 0.1, *, model_type: str = "llama"
) -> Path:
    """As :func:`write_model`, but the last tokens nearly decide the next one.

    Args:
        directory: of the model.
        share: of the layers in what is said; more of it is harder to learn.
        model_type: of the model.
    """
    network = model(model_type)
    for layer in find_backbone(network).layers:
        weights = layer.parameters()
        layer.update(tree_map(lambda a: a * share if a.ndim > 1 else a, weights))
    return _write(directory, network, config(model_type))


def drafter_config(version: int = 2, **changes: Any) -> dict[str, Any]:
    """A drafter for :func:`config`, as a published checkpoint would state it."""
    selector = {
        "conv_kernel_size": 2,
        "conv_group_size": 8,
        "selector_rank": 8,
        "selector_top_k": 6,
    }
    return {
        "architectures": ["DFlash2DraftModel" if version == 2 else "DFlashDraftModel"],
        "hidden_size": 64,
        "head_dim": 16,
        "intermediate_size": 96,
        "layer_types": ["sliding_attention", "full_attention"],
        "max_position_embeddings": 512,
        "num_attention_heads": 4,
        "num_hidden_layers": 2,
        "num_key_value_heads": 2,
        "num_target_layers": 4,
        "rms_norm_eps": 1e-6,
        "sliding_window": 12,
        "vocab_size": VOCAB,
        "dflash_config": {
            "block_size": 8,
            "mask_token_id": 259,
            "target_layer_ids": [0, 2],
            **(selector if version == 2 else {}),
        },
        **changes,
    }


def drafter_network(version: int = 2, **changes: Any) -> DFlashNetwork:
    network = DFlashNetwork(parse_config(drafter_config(version, **changes), "tiny"))
    keys = iter(mx.random.split(mx.random.key(5), 200))
    network.update(
        tree_map(
            lambda a: mx.random.normal(a.shape, scale=0.2, key=next(keys)),
            network.parameters(),
        )
    )
    mx.eval(network.parameters())
    return network


def write_drafter(directory: Path, version: int = 2, **changes: Any) -> Path:
    """A drafter checkpoint with random weights in the published layout."""
    directory.mkdir(parents=True, exist_ok=True)
    weights = tree_flatten(drafter_network(version, **changes).parameters())
    mx.save_safetensors(str(directory / "model.safetensors"), dict(weights))
    config = json.dumps(drafter_config(version, **changes))
    (directory / "config.json").write_text(config)
    return directory


class ScriptedDrafter:
    """Proposes the target's own continuation, spoiled after a chosen length.

    Args:
        truth: the tokens plain decoding gives after the prompt.
        prompt: length of the prompt.
        lengths: how many drafts of each cycle are right; the next one is wrong.
        block_size: rows of one verify pass.
    """

    feature_layers: tuple[int, ...] = ()

    def __init__(
        self,
        truth: Sequence[int],
        prompt: int,
        lengths: Iterator[int],
        *,
        block_size: int = 8,
        feature_layers: tuple[int, ...] = (),
    ):
        self.truth = list(truth)
        self.prompt = prompt
        self.lengths = lengths
        self.block_size = block_size
        self.feature_layers = feature_layers
        self.rows: list[tuple[int, int]] = []

    def new_state(self) -> list[int]:
        return []

    def idle(self, state: list[int]) -> bool:
        return False

    def observe(
        self,
        state: list[int],
        token_ids: Sequence[int],
        features: mx.array | None,
        start: int,
    ) -> None:
        state.extend(token_ids)
        if features is not None:
            self.rows.append((start, features.shape[0]))

    def propose(
        self, state: list[int], anchor: mx.array, limit: int, sampling: DraftSampling
    ) -> Proposal:
        count = min(limit, self.block_size - 1)
        if count < 1:
            return empty_proposal()
        right = next(self.lengths)
        done = len(state) - self.prompt
        ahead = self.truth[done : done + count]
        ahead += [0] * (count - len(ahead))
        drafts = [
            token if i < right else (token + 1) % VOCAB for i, token in enumerate(ahead)
        ]
        return Proposal(mx.array(drafts, dtype=mx.int32))
