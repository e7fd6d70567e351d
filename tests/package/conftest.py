# SPDX-License-Identifier: Apache-2.0
"""Small model directories, written without mlx."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from splashpy.package.components import License, Source, Target
from splashpy.package.integrity import sha256_file
from splashpy.package.manifest import FileEntry, Manifest, Tokens

CONFIG = {
    "model_type": "llama",
    "hidden_size": 8,
    "num_hidden_layers": 2,
    "vocab_size": 16,
    "max_position_embeddings": 512,
    "eos_token_id": 2,
}

MakeModel = Callable[..., Path]
MakePackage = Callable[[Path], Path]


def write_json(path: Path, data: Any) -> None:
    path.write_text(json.dumps(data), encoding="utf-8")


def write_weights(path: Path) -> None:
    save_file({"model.norm.weight": np.zeros(8, np.float32)}, path)


@pytest.fixture
def make_model(tmp_path: Path) -> MakeModel:
    """Write a plain MLX model; keyword arguments replace keys of its config.json."""

    def make(directory: Path | None = None, **changes: Any) -> Path:
        directory = directory or tmp_path / "model"
        directory.mkdir(parents=True, exist_ok=True)
        config = {**CONFIG, **changes}
        config = {key: value for key, value in config.items() if value is not ...}
        write_json(directory / "config.json", config)
        write_json(directory / "tokenizer.json", {"added_tokens": []})
        write_weights(directory / "model.safetensors")
        return directory

    return make


@pytest.fixture
def make_package() -> MakePackage:
    """Write a complete native package into a directory."""

    def make(directory: Path) -> Path:
        for name in ("target", "tokenizer", "licenses"):
            (directory / name).mkdir(parents=True)
        write_json(directory / "target" / "config.json", CONFIG)
        write_weights(directory / "target" / "model.safetensors")
        write_json(directory / "tokenizer" / "tokenizer.json", {"added_tokens": []})
        (directory / "licenses" / "target.txt").write_text("terms", encoding="utf-8")
        write_manifest(directory)
        return directory

    return make


def write_manifest(directory: Path) -> Manifest:
    """List what a directory holds in its splashpy.json."""
    files = sorted(path for path in directory.rglob("*") if path.is_file())
    manifest = Manifest(
        name="tiny",
        created_with={"tool": "test"},
        created_at="2026-01-01T00:00:00Z",
        target=Target(
            model_type="llama",
            mlx_lm="0.32.2",
            hidden_size=CONFIG["hidden_size"],
            num_hidden_layers=2,
            vocab_size=16,
            max_context=512,
            cache_kinds=("kv", "kv"),
            quantization=None,
            source=Source(kind="recipe", repo_id="packages/tiny", revision="1"),
            license=License(spdx="Apache-2.0", text="licenses/target.txt"),
        ),
        tokens=Tokens(eos_token_ids=(2, 7)),
        files=tuple(
            FileEntry(
                path=path.relative_to(directory).as_posix(),
                size=path.stat().st_size,
                sha256=sha256_file(path),
            )
            for path in files
            if path.name != "splashpy.json"
        ),
    )
    (directory / "splashpy.json").write_bytes(manifest.to_bytes())
    return manifest


@pytest.fixture
def rewrite_manifest() -> Callable[[Path], Manifest]:
    """List again what a package holds, after a test changed it."""
    return write_manifest
