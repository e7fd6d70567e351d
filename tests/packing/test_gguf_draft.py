# SPDX-License-Identifier: Apache-2.0
"""Drafters written by the gguf package under llama.cpp's names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import tiny
from packing.gguf_writer import write_gguf

from splashpy.errors import ModelKindError
from splashpy.models.dflash2_load import load_drafter
from splashpy.models.dflash2_parse import parse_config
from splashpy.models.target import TargetFacts
from splashpy.package.fields import read_json
from splashpy.package.progress import never, silent
from splashpy.package.weights.safetensors_file import Checkpoint
from splashpy.packing.gguf_draft import plan_gguf_draft
from splashpy.packing.target_files import json_bytes

NAMES = {
    "fc.weight": "fc.weight",
    "hidden_norm.weight": "enc.output_norm.weight",
    "norm.weight": "output_norm.weight",
    "candidate_selector.predecessor_codebook": "selector_predecessor.weight",
    "candidate_selector.successor_codebook": "selector_successor.weight",
    "candidate_selector.hidden_projection.weight": "selector_hidden.weight",
}
LAYER_NAMES = {
    "input_layernorm.weight": "attn_norm.weight",
    "post_attention_layernorm.weight": "ffn_norm.weight",
    "self_attn.q_proj.weight": "attn_q.weight",
    "self_attn.k_proj.weight": "attn_k.weight",
    "self_attn.v_proj.weight": "attn_v.weight",
    "self_attn.o_proj.weight": "attn_output.weight",
    "self_attn.q_norm.weight": "attn_q_norm.weight",
    "self_attn.k_norm.weight": "attn_k_norm.weight",
    "mlp.gate_proj.weight": "ffn_gate.weight",
    "mlp.up_proj.weight": "ffn_up.weight",
    "mlp.down_proj.weight": "ffn_down.weight",
    "attention_conv.base_kernel": "attn_conv_base",
    "attention_conv.kernel_projection.weight": "attn_conv_proj.weight",
    "mlp_conv.base_kernel": "ffn_conv_base",
    "mlp_conv.kernel_projection.weight": "ffn_conv_proj.weight",
}


def stored_name(name: str) -> str:
    if not name.startswith("layers."):
        return NAMES[name]
    _, layer, rest = name.split(".", 2)
    return f"blk.{layer}.{LAYER_NAMES[rest]}"


def write(path: Path, drafter: Path, **changes: Any) -> Path:
    config = read_json(drafter / "config.json")
    flash = config["dflash_config"]
    writer = gguf.GGUFWriter(str(path), "dflash")
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_key_length(config["head_dim"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_sliding_window(config["sliding_window"])
    writer.add_uint32("tokenizer.ggml.mask_token_id", flash["mask_token_id"])
    writer.add_array("tokenizer.ggml.tokens", [f"t{i}" for i in range(tiny.VOCAB)])
    facts = {
        "block_size": flash["block_size"],
        "target_layers": [layer + 1 for layer in flash["target_layer_ids"]],
        "attention.sliding_window_pattern": [
            kind == "sliding_attention" for kind in config["layer_types"]
        ],
        **{key: flash[key] for key in flash if key.startswith(("conv", "selector"))},
        **changes,
    }
    for key, value in facts.items():
        add = writer.add_array if isinstance(value, list) else writer.add_uint32
        add(f"dflash.{key}", value)
    for name, tensor in Checkpoint.open(drafter).items():
        data = np.array(tensor.data)
        if data.ndim == 2 and data.shape[1] % 32 == 0 and "codebook" not in name:
            data = data.astype(np.float16)
        writer.add_tensor(stored_name(name), data)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@pytest.mark.parametrize("version", [1, 2])
def test_a_drafter_comes_back_from_llama_cpps_names(
    tmp_path: Path, version: int
) -> None:
    drafter = tiny.write_drafter(tmp_path / "drafter", version)
    path = write(tmp_path / "drafter.gguf", drafter)

    plan = plan_gguf_draft(path, None)

    given = parse_config(read_json(drafter / "config.json"), "given")
    read = parse_config(plan.config, "read")
    for key in ("version", "feature_layers", "block_size", "mask_token_id", "windows"):
        assert getattr(read, key) == getattr(given, key)
    for key in ("vocab_size", "head_dim", "selector_rank", "conv_group_size"):
        assert getattr(read, key) == getattr(given, key)
    assert set(read.causal) == {False}
    tensors = Checkpoint.open(drafter)
    assert set(plan.shards.entries) == set(tensors)
    for name in tensors:
        stored = plan.shards.give(name)
        assert stored.shape == tensors[name].shape
        assert np.allclose(stored.data, tensors[name].data, rtol=2**-10, atol=2**-24)


def test_it_loads_as_a_drafter_when_packed(tmp_path: Path) -> None:
    drafter = tiny.write_drafter(tmp_path / "drafter")
    plan = plan_gguf_draft(write(tmp_path / "drafter.gguf", drafter), 4)
    folder = tmp_path / "packed"
    folder.mkdir()
    (folder / "config.json").write_bytes(json_bytes(plan.config))
    plan.shards.write(folder, silent, never)

    network = load_drafter(
        folder,
        TargetFacts(
            model_type="llama",
            vocab_size=tiny.VOCAB,
            hidden_size=64,
            num_layers=4,
            context_max=512,
        ),
    )

    assert plan.changed
    assert network.config.quantization is not None
    assert network.config.quantization.bits == 4


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"target_layers": [0, 3]}, r"target_layers is \[0, 3\]"),
        ({"selector_top_k": 0}, "tensors|selector|conv"),
        ({"conv_group_size": 0}, "conv"),
    ],
)
def test_what_does_not_fit_together_is_refused(
    tmp_path: Path, changes: dict[str, Any], named: str
) -> None:
    drafter = tiny.write_drafter(tmp_path / "drafter")
    path = write(tmp_path / "drafter.gguf", drafter, **changes)

    with pytest.raises(ModelKindError, match=named):
        load(path, tmp_path / "folder")


def load(path: Path, folder: Path) -> None:
    plan = plan_gguf_draft(path, None)
    folder.mkdir()
    (folder / "config.json").write_bytes(json_bytes(plan.config))
    plan.shards.write(folder, silent, never)
    facts = TargetFacts(
        model_type="llama",
        vocab_size=tiny.VOCAB,
        hidden_size=64,
        num_layers=4,
        context_max=512,
    )
    load_drafter(folder, facts)


def test_a_target_is_no_drafter(tmp_path: Path) -> None:
    path = tmp_path / "x.gguf"
    writer = gguf.GGUFWriter(str(path), "llama")
    writer.add_tensor("output_norm.weight", np.ones(4, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()

    with pytest.raises(ModelKindError, match="'llama' is no drafter"):
        plan_gguf_draft(path, None)


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"dflash.block_count": 2_000_000_000}, "block_count is 2000000000"),
        ({"dflash.rope.freq_base": float("inf")}, "freq_base is not a finite number"),
        ({}, "tokenizer.ggml.tokens is missing"),
    ],
)
def test_a_hostile_file_is_refused(
    tmp_path: Path, changes: dict[str, Any], named: str
) -> None:
    """Its codebook is a single number, so it does not tell the vocabulary."""
    counts = ("attention.head_count", "embedding_length", "feed_forward_length")
    counts += ("attention.key_length", "context_length", "block_count")
    path = tmp_path / "drafter.gguf"
    metadata: dict[str, Any] = {"general.architecture": "dflash"}
    metadata |= {f"dflash.{key}": 1 for key in counts}
    metadata |= {"dflash.attention.layer_norm_rms_epsilon": 1e-6}
    one = ("F32", (), bytes(4))
    tensors = {"blk.0.attn_norm.weight": one, "selector_predecessor.weight": one}
    metadata |= {"tokenizer.ggml.tokens": ["a"]} if changes else {}
    write_gguf(path, metadata | changes, tensors)

    with pytest.raises(ModelKindError, match=named):
        plan_gguf_draft(path, None)
