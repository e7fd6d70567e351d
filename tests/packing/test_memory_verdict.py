# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import tiny

from splashpy.engine.loading import LoadRequest, load
from splashpy.engine.memory import budget_bytes, plan_memory
from splashpy.errors import CapacityError
from splashpy.package.model_directory import ModelDirectory
from splashpy.packing.memory_verdict import (
    Weights,
    gguf_bits,
    judge,
    loaded_bytes,
    needs_of,
    stored_bits,
)
from splashpy.packing.outlook import of_directory
from splashpy.protocol import Device, LoadOptions

GB = 10**9
QWEN_27B: dict[str, Any] = {
    "model_type": "qwen3_5",
    "quantization": {"bits": 4, "group_size": 64},
    "text_config": {
        "num_hidden_layers": 64,
        "full_attention_interval": 4,
        "num_attention_heads": 24,
        "num_key_value_heads": 4,
        "head_dim": 256,
        "hidden_size": 5120,
        "max_position_embeddings": 262144,
    },
}


def gpu(gigabytes: float) -> Device:
    budget = int(gigabytes * GB)
    return Device(memory_bytes=budget * 4 // 3, working_set_bytes=budget)


@pytest.mark.parametrize(
    ("budget", "level"), [(27, "fits"), (21.5, "tight"), (20, "does not fit")]
)
def test_a_verdict_has_three_levels(budget: float, level: str) -> None:
    verdict = judge([Weights(int(16.4 * GB))], QWEN_27B, gpu(budget))

    assert verdict is not None
    assert verdict.level == level
    # 16 of 64 layers keep keys and values: 2 * 16 * 4 * 256 numbers of 2 bytes a token.
    assert verdict.state_bytes == 8192 * 2 * 16 * 4 * 256 * 2
    assert str(verdict).startswith(
        f"memory: {level}: 16.4 GB of weights and 536.9 MB for 8K tokens; "
        f"{budget - 2**30 / GB:.1f} GB may be used"
    )


@pytest.mark.parametrize("budget", [18.0, 19.9, 20.8, 21.5, 24.0, 27.0, 64.0])
def test_a_verdict_says_what_loading_will_say(budget: float) -> None:
    parts, machine = [Weights(int(16.4 * GB)), Weights(GB)], gpu(budget)
    verdict = judge(parts, QWEN_27B, machine)
    assert verdict is not None
    needs = needs_of(parts, QWEN_27B, on_cpu=False)
    try:
        plan = plan_memory(needs, budget_bytes(machine.working_set_bytes, None))
    except CapacityError:
        assert verdict.level == "does not fit"
    else:
        assert verdict.level != "does not fit"
        assert verdict.room == plan.context


def test_some_contexts_are_told_with_what_they_need() -> None:
    verdict = judge([Weights(int(16.4 * GB))], QWEN_27B, gpu(24))
    assert verdict is not None
    assert [share.tokens for share in verdict.shares] == [8192, 32768, 131_072, 262_144]
    assert [share.kv for share in verdict.shares] == ["bf16", "bf16", "bf16", "bf16"]
    assert [share.fits for share in verdict.shares] == [True, True, False, False]
    tighter = judge([Weights(int(16.4 * GB))], QWEN_27B, gpu(22.5))
    assert tighter is not None
    assert str(tighter.shares[1]) == "32K tokens in 8 bits: 20.8 GB, fits"


def test_the_plan_of_files_is_the_plan_of_shapes(tmp_path: Path) -> None:
    model = tiny.write_model(tmp_path / "model", head_dim=64)
    config = json.loads((model / "config.json").read_text())
    written = json.dumps(config | {"torch_dtype": "float32"})
    (model / "config.json").write_text(written)
    directory = ModelDirectory.open(model)
    request = LoadRequest.of(
        directory, LoadOptions(lookup=False), 64, memory_bytes=64 * GB
    )
    loaded = load(request, lambda _: None)
    outlook = of_directory(directory.path)
    needs = needs_of(outlook.parts, outlook.config, on_cpu=True)
    assert loaded.plan is not None
    assert needs.row == loaded.plan.needs.row == loaded.target.facts.kv_bytes_per_token
    assert needs.row_q8 == loaded.plan.needs.row_q8
    # Of files, names and shapes are counted too.
    assert needs.target == pytest.approx(loaded.plan.needs.target, rel=0.05)


def test_weights_become_float32_where_there_is_no_gpu() -> None:
    verdict = judge(
        [Weights(45 * GB // 10, stored_bits(QWEN_27B))],
        QWEN_27B,
        Device(memory_bytes=37 * GB),
    )

    assert verdict is not None
    assert verdict.weights_bytes == 32 * GB  # 4.5 bits a weight with scale and bias
    assert verdict.level == "tight"


@pytest.mark.parametrize(
    ("config", "bits"),
    [
        ({}, 16),
        ({"torch_dtype": "float32"}, 32),
        ({"text_config": {"dtype": "float32"}}, 32),
        ({"quantization": {"bits": 8, "group_size": 32}}, 9),
        ({"quantization": {"bits": "4", "group_size": 0}}, 16),
        ({"quantization": 7}, 16),
    ],
)
def test_stored_bits_come_from_the_configuration(
    config: dict[str, Any], bits: int
) -> None:
    assert stored_bits(config) == bits


@pytest.mark.parametrize(
    ("file", "bits"),
    [
        ("model-Q4_1.gguf", 5),
        ("SmolLM2-135M-Instruct.Q4_0.gguf", 4.5),
        ("more/Qwen3-8B-Q4_K_M.gguf", 4.5),
        ("model.q8_0.gguf", 8.5),
        ("Model-IQ3_XXS.gguf", 3.5),
        ("model-BF16.gguf", 16),
        ("model.f32.gguf", 32),
        ("Q8Bot-7B-F16.gguf", 16),
        ("model.gguf", 16),
    ],
)
def test_the_name_of_a_gguf_file_tells_its_bits(file: str, bits: float) -> None:
    assert gguf_bits(file) == bits


def test_packing_makes_plain_weights_smaller_and_leaves_packed_ones() -> None:
    plain, packed = Weights(32 * GB), Weights(9 * GB, 4.5)

    assert plain.packed(4, 64) == packed
    assert packed.packed(8, 64) == packed
    assert plain.packed(16, 64) == plain


def test_a_drafter_counts_beside_its_target() -> None:
    parts = [Weights(9 * GB, 4.5), Weights(2 * GB)]

    on_gpu, on_cpu = (
        judge(parts, {}, gpu(27)),
        judge(parts, {}, Device(memory_bytes=100 * GB)),
    )

    assert on_gpu is not None
    assert on_cpu is not None
    assert on_gpu.weights_bytes == 11 * GB
    assert on_cpu.weights_bytes == (64 + 4) * GB


def test_nothing_is_said_about_what_is_not_known() -> None:
    assert judge([Weights(0), Weights(GB)], QWEN_27B, gpu(27)) is None
    assert judge([Weights(GB)], QWEN_27B, Device()) is None


@pytest.mark.parametrize(
    "odd",
    [
        {"num_hidden_layers": None},
        {"num_hidden_layers": "64"},
        {"num_key_value_heads": -1},
        {"kv_lora_rank": 512},
        {"head_dim": None, "hidden_size": True},
    ],
)
def test_an_odd_configuration_counts_no_state(odd: dict[str, Any]) -> None:
    config = {**QWEN_27B, "text_config": {**QWEN_27B["text_config"], **odd}}

    verdict = judge([Weights(GB)], config, gpu(27))

    assert verdict is not None
    assert (verdict.level, verdict.state_bytes) == ("fits", 0)
    assert "room for" not in str(verdict)


def test_weights_that_are_there_twice_count_once() -> None:
    files = [
        ("model-00001-of-00002.safetensors", 5),
        ("model-00002-of-00002.safetensors", 7),
        ("consolidated.safetensors", 12),
        ("target/head.bin", 3),
        ("draft/model.safetensors", 1),
        ("vision/model.bin", 50),
        ("pytorch_model.bin", 12),
        ("tokenizer.json", 100),
    ]
    assert loaded_bytes(files) == 16
