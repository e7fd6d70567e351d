# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import pytest
import tiny
from mlx.utils import tree_flatten

from splashpy.errors import ModelKindError
from splashpy.models.loading import load_target, to_float32


def load(directory: Path, **changes: object):
    config = json.loads((directory / "config.json").read_text()) | changes
    steps: list[tuple[int, int]] = []
    loaded = load_target(
        directory, config, 512, lambda done, total: steps.append((done, total))
    )
    return loaded, steps


def test_a_directory_loads_and_reports_every_byte_once(tmp_path: Path) -> None:
    tiny.write_model(tmp_path)
    target, steps = load(tmp_path)
    done = [step[0] for step in steps]
    assert done[0] == 0
    assert done == sorted(done)
    assert done[-1] == steps[-1][1] == target.facts.weight_bytes
    assert len(steps) > 4
    expected = tiny.target().forward(tiny.target().new_state(4), mx.arange(4), rows=4)
    got = target.forward(target.new_state(4), mx.arange(4), rows=4)
    assert mx.array_equal(expected.logits, got.logits)


@pytest.mark.parametrize(("bits", "group"), [(4, 32), (8, 32)])
def test_quantized_weights_become_the_float32_values_they_stand_for(
    bits: int, group: int
) -> None:
    model = tiny.model(tie_word_embeddings=True)
    nn.quantize(model, group_size=group, bits=bits)
    quantized = model(mx.arange(8)[None])
    to_float32(model)
    assert not [m for _, m in model.named_modules() if hasattr(m, "scales")]
    assert {a.dtype for _, a in tree_flatten(model.parameters())} == {mx.float32}
    # The quantized product sums in another order: a few ulps of values near 1.
    assert mx.allclose(quantized, model(mx.arange(8)[None]), atol=1e-3)


@pytest.mark.parametrize("family", ["qwen3_moe", "kimi_k25"])
@pytest.mark.parametrize(
    ("mode", "bits", "group"), [("affine", 4, 32), ("mxfp4", 4, 32), ("nvfp4", 4, 16)]
)
def test_quantized_experts_and_latents_become_float32_too(
    family: str, mode: str, bits: int, group: int
) -> None:
    model = tiny.model(family)

    def packs(_: str, module: Any) -> bool:
        return hasattr(module, "to_quantized") and module.weight.shape[-1] % group == 0

    nn.quantize(model, group_size=group, bits=bits, mode=mode, class_predicate=packs)
    quantized = model(mx.arange(8)[None])
    to_float32(model)
    assert not [m for _, m in model.named_modules() if hasattr(m, "scales")]
    assert mx.allclose(quantized, model(mx.arange(8)[None]), atol=1e-3)


def test_half_precision_weights_become_float32() -> None:
    model = tiny.model()
    model.set_dtype(mx.bfloat16)
    to_float32(model)
    assert {a.dtype for _, a in tree_flatten(model.parameters())} == {mx.float32}


def test_weights_that_do_not_fit_the_configuration_are_refused(tmp_path: Path) -> None:
    tiny.write_model(tmp_path)
    path = tmp_path / "config.json"
    path.write_text(json.dumps(tiny.config(intermediate_size=128)))
    with pytest.raises(ModelKindError, match="do not fit"):
        load(tmp_path)


def test_bytes_of_state_per_token_are_those_the_state_really_takes(
    tmp_path: Path,
) -> None:
    target, _ = load(tiny.write_model(tmp_path))
    state = target.new_state(16)
    target.forward(state, mx.arange(16), rows=0)
    assert state.nbytes == 16 * target.facts.kv_bytes_per_token
