# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mlx_lm.utils import load_model
from packing.gguf_reference import reference_model
from packing.gguf_writer import pack
from packing.tiny_gguf import HEADS, HIDDEN, KV_HEADS, LAYERS, tiny_gguf

from splashpy.errors import IntegrityError, ModelKindError
from splashpy.models.loading import to_float32
from splashpy.packing.gguf import read_gguf, restore_halves
from splashpy.packing.target_files import write_target

SIZES = {
    "hidden_size": HIDDEN,
    "num_hidden_layers": LAYERS,
    "intermediate_size": 96,
    "num_attention_heads": HEADS,
    "num_key_value_heads": KV_HEADS,
    "rms_norm_eps": 1e-5,
    "vocab_size": 260,
    "head_dim": HIDDEN // HEADS,
    "max_position_embeddings": 128,
    "rope_theta": 10000.0,
    "tie_word_embeddings": True,
}


@pytest.mark.parametrize("kind", ["llama", "qwen3"])
@pytest.mark.parametrize("packed", ["F16", "Q4_0", "Q4_1", "Q8_0"])
def test_mlx_lm_computes_what_the_file_means(
    tmp_path: Path, kind: str, packed: str
) -> None:
    tiny = tiny_gguf(kind, packed)
    parts = read_gguf(tiny.write(tmp_path / "tiny.gguf"))
    write_target(parts, tmp_path)
    model, _ = load_model(tmp_path / "target")
    to_float32(model)
    ids = mx.array([[5, 77, 200, 9, 33, 1]])

    # The same numbers in another row order: float32 sums differ in their last bits.
    values = {name: mx.array(value) for name, value in tiny.values.items()}
    expected = reference_model(SIZES | {"model_type": kind}, values)(ids)
    assert mx.allclose(model(ids), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("packed", ["Q4_0", "Q4_1", "Q8_0"])
def test_packed_values_are_kept(tmp_path: Path, packed: str) -> None:
    tiny = tiny_gguf("qwen3", packed)
    weights = read_gguf(tiny.write(tmp_path / "tiny.gguf")).weights
    name = "model.layers.1.mlp.down_proj"

    values = mx.dequantize(
        weights[f"{name}.weight"],
        weights[f"{name}.scales"].astype(mx.float32),
        weights[f"{name}.biases"].astype(mx.float32),
        group_size=32,
        bits=8 if packed == "Q8_0" else 4,
    )

    # The reader stores -8 or -128 times the scale as a float16 bias: one rounding.
    expected = tiny.values["blk.1.ffn_down.weight"]
    assert np.allclose(np.array(values), expected, atol=2**-10)


def test_the_configuration_is_the_metadata(tmp_path: Path) -> None:
    config = read_gguf(tiny_gguf().write(tmp_path / "tiny.gguf")).config

    expected = {
        "model_type": "llama",
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "vocab_size": 260,
        "max_position_embeddings": 128,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "tie_word_embeddings": True,
        "eos_token_id": 0,
        "bos_token_id": 1,
        "quantization": {
            "group_size": 32,
            "bits": 4,
            "mode": "affine",
            "model.embed_tokens": {"group_size": 32, "bits": 8},
        },
    }
    assert {key: config[key] for key in expected} == expected
    assert json.loads(json.dumps(config)) == config


def test_an_unpacked_file_has_no_quantization(tmp_path: Path) -> None:
    parts = read_gguf(tiny_gguf(packed="F16").write(tmp_path / "tiny.gguf"))

    assert "quantization" not in parts.config


def test_a_norm_that_float16_cannot_hold_stays_float32(tmp_path: Path) -> None:
    tiny = tiny_gguf()
    exact, inexact = np.full(HIDDEN, 1.5), np.full(HIDDEN, 1.1)
    tiny.tensors["output_norm.weight"], _ = pack("F32", exact)
    tiny.tensors["blk.0.attn_norm.weight"], _ = pack("F32", inexact)

    weights = read_gguf(tiny.write(tmp_path / "tiny.gguf")).weights

    assert weights["model.norm.weight"].dtype == mx.float16
    assert weights["model.layers.0.input_layernorm.weight"].dtype == mx.float32


def test_a_second_end_token_joins_the_first(tmp_path: Path) -> None:
    tiny = tiny_gguf()
    tiny.metadata["tokenizer.ggml.eot_token_id"] = 5

    parts = read_gguf(tiny.write(tmp_path / "tiny.gguf"))

    assert parts.eos_token_ids == (0, 5)
    assert parts.config["eos_token_id"] == [0, 5]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"general.architecture": "gemma"}, "architecture 'gemma'"),
        ({"llama.rope.scaling.type": "yarn"}, "scaled rotary positions"),
        ({"tokenizer.ggml.model": "llama"}, "tokenizer 'llama'"),
        ({"tokenizer.ggml.pre": "dbrx"}, "splitting 'dbrx'"),
        ({"tokenizer.ggml.eos_token_id": 9999}, "vocabulary has 260"),
        ({"llama.block_count": None}, "llama.block_count is missing"),
        ({"llama.context_length": "long"}, "llama.context_length is not an integer"),
        ({"tokenizer.ggml.eos_token_id": None}, "eos_token_id is missing"),
        ({"llama.attention.head_count": 0}, "head_count is not an integer of at"),
        ({"llama.rope.freq_base": float("nan")}, "freq_base is not a finite number"),
        ({"llama.block_count": 2_000_000_000}, "2000000000, and 2 layers have"),
        ({"llama.block_count": 1}, "block_count is 1, and 2 layers have tensors"),
    ],
)
def test_what_is_not_supported_is_named(
    tmp_path: Path, changes: dict[str, Any], words: str
) -> None:
    tiny = tiny_gguf()
    merged = tiny.metadata | changes
    tiny.metadata = {key: value for key, value in merged.items() if value is not None}

    with pytest.raises(ModelKindError, match=words):
        read_gguf(tiny.write(tmp_path / "tiny.gguf"))


def test_a_tensor_without_a_place_is_named(tmp_path: Path) -> None:
    tiny = tiny_gguf()
    tiny.tensors["blk.0.attn_q.bias"], _ = pack("F32", np.zeros(HIDDEN))

    with pytest.raises(ModelKindError, match=r"blk\.0\.attn_q\.bias"):
        read_gguf(tiny.write(tmp_path / "tiny.gguf"))


@pytest.mark.parametrize("content", [b"", b"GGUF", b"not a gguf file" * 10])
def test_a_file_that_is_no_gguf_is_damaged(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "bad.gguf"
    path.write_bytes(content)

    with pytest.raises(IntegrityError, match="cannot be read as GGUF"):
        read_gguf(path)


@given(heads=st.integers(1, 4), pairs=st.integers(1, 5), columns=st.integers(1, 3))
def test_rows_come_back_from_llama_cpps_order(
    heads: int, pairs: int, columns: int
) -> None:
    rows = np.arange(heads * 2 * pairs * columns).reshape(-1, columns)
    # llama.cpp's conversion: first and second halves of a head become neighbours.
    halves = rows.reshape(heads, 2, pairs, columns)
    stored = halves.swapaxes(1, 2).reshape(rows.shape)

    assert (np.array(restore_halves(mx.array(stored), heads)) == rows).all()
