# SPDX-License-Identifier: Apache-2.0
"""The stored DFlash cases, read and ready to compare."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest

from splashpy.models.dflash2 import DFlashNetwork
from splashpy.models.dflash2_load import load_drafter
from splashpy.models.target import TargetFacts

FOLDER = Path(__file__).parent / "dflash2"


@dataclass(frozen=True)
class StoredTarget:
    """Embedding and head of the imaginary target a case was computed with."""

    embedding: mx.array
    head_weight: mx.array

    def embed(self, token_ids: mx.array) -> mx.array:
        return self.embedding[token_ids]

    def head(self, hidden: mx.array) -> mx.array:
        return hidden @ self.head_weight.T


@dataclass(frozen=True)
class DrafterCase:
    """One folder: the network, its target's ends, inputs and results."""

    name: str
    network: DFlashNetwork
    target: StoredTarget
    cycles: list[dict[str, Any]]
    arrays: dict[str, mx.array]
    tolerance: float

    def array(self, cycle: int, name: str) -> mx.array:
        return self.arrays[f"cycle{cycle}.{name}"]


def load_arrays(path: Path) -> dict[str, mx.array]:
    loaded = mx.load(str(path))
    assert isinstance(loaded, dict)
    return loaded


@pytest.fixture
def stored() -> Path:
    return FOLDER


@pytest.fixture
def drafter_case(request: pytest.FixtureRequest) -> DrafterCase:
    folder = FOLDER / request.param
    half = request.param == "v2_bf16"
    ends = load_arrays(folder / "target_io.safetensors")
    vocab, size = ends["lm_head.weight"].shape
    facts = TargetFacts(
        model_type="imaginary",
        vocab_size=vocab,
        hidden_size=size,
        num_layers=8,
        context_max=4096,
    )
    case = json.loads((folder / "case.json").read_text())
    network = load_drafter(folder, facts, dtype=mx.bfloat16 if half else mx.float32)
    # v1_full was computed with blocks of 16 rows; its config.json says 8.
    network.config = replace(network.config, block_size=case["block_size"])
    return DrafterCase(
        name=request.param,
        network=network,
        target=StoredTarget(ends["embed_tokens.weight"], ends["lm_head.weight"]),
        cycles=case["cycles"],
        arrays=load_arrays(folder / "io.safetensors"),
        tolerance=0.08 if half else 2e-5,
    )
