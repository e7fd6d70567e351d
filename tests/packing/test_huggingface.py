# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest
from mlx.utils import tree_flatten
from mlx_lm.models import llama
from mlx_lm.utils import load_model

from splashpy.errors import IntegrityError, ModelKindError, RemoteCodeError
from splashpy.package.components import SourceFile
from splashpy.packing.huggingface import read_repository
from splashpy.packing.recipe import HubSource
from splashpy.packing.target_files import write_safetensors, write_target

CONFIG: dict[str, Any] = {
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 96,
    "rms_norm_eps": 1e-5,
    "max_position_embeddings": 128,
    "tie_word_embeddings": True,
    "eos_token_id": 2,
    "bos_token_id": 1,
}

SOURCE = HubSource(
    repo_id="owner/model",
    revision="a" * 40,
    files=(SourceFile(path="config.json", size=1, sha256="0" * 64),),
    bits=4,
    group_size=32,
    embedding_bits=8,
)


def write(path: Path, data: Any) -> None:
    path.write_text(json.dumps(data), encoding="utf-8")


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A bfloat16 checkpoint as the Hub has them."""
    path = tmp_path / "repository"
    path.mkdir()
    mx.random.seed(3)
    model = llama.Model(llama.ModelArgs.from_dict(CONFIG))
    weights = tree_flatten(model.parameters())
    write_safetensors(
        {name: array.astype(mx.bfloat16) for name, array in weights},
        path / "model.safetensors",
    )
    write(path / "config.json", CONFIG)
    write(path / "tokenizer.json", {"model": {"vocab": {}}})
    write(path / "generation_config.json", {"eos_token_id": [2, 7]})
    return path


def test_mlx_lm_loads_the_result_near_the_original(
    repository: Path, tmp_path: Path
) -> None:
    parts = read_repository(repository, SOURCE)
    write_target(parts, tmp_path)

    model, _ = load_model(tmp_path / "target")
    original, _ = load_model(repository)
    ids = mx.array([[3, 50, 9, 61]])
    got, expected = model(ids), original(ids)
    # Four bits keep a random model's logits to about a tenth of their spread.
    assert mx.std(got - expected) < 0.2 * mx.std(expected)


def test_layers_and_embedding_get_the_wished_bits(repository: Path) -> None:
    parts = read_repository(repository, SOURCE)

    assert parts.config["quantization"] == {
        "group_size": 32,
        "bits": 4,
        "mode": "affine",
        "model.embed_tokens": {"group_size": 32, "bits": 8},
    }
    assert parts.weights["model.embed_tokens.weight"].shape == (96, 16)
    assert parts.weights["model.layers.0.mlp.up_proj.weight"].shape == (96, 8)
    assert parts.weights["model.norm.weight"].dtype == mx.bfloat16


def test_tokens_and_tokenizer_come_along(repository: Path) -> None:
    parts = read_repository(repository, SOURCE)

    assert parts.eos_token_ids == (2, 7)
    assert parts.special == {"bos": 1}
    assert set(parts.tokenizer) == {"tokenizer.json", "generation_config.json"}


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"quantization": {"bits": 4}}, ModelKindError),
        ({"model_type": "no_such_model"}, ModelKindError),
        ({"hidden_size": None}, ModelKindError),
        ({"auto_map": {"AutoModel": "x.Y"}}, RemoteCodeError),
    ],
)
def test_a_checkpoint_that_cannot_be_used_is_refused(
    repository: Path, change: dict[str, Any], error: type[Exception]
) -> None:
    write(repository / "config.json", CONFIG | change)

    with pytest.raises(error):
        read_repository(repository, SOURCE)


def test_a_checkpoint_cut_short_is_refused(repository: Path) -> None:
    weights = repository / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-2])

    with pytest.raises(IntegrityError, match="cut short"):
        read_repository(repository, SOURCE)
