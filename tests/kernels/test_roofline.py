# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from splashpy.kernels import cycle_work, roofline
from splashpy.kernels.cycle_work import DFLASH2_27B, QWEN38_27B, Geometry
from splashpy.kernels.roofline import Work


def test_the_weights_of_a_pass_are_those_of_the_model() -> None:
    # 25.62 G weights at 4.5 bits; activations and states add little.
    parts = cycle_work.verify_parts(QWEN38_27B, 8, 1)
    weights = sum(
        part.total.bytes for part in parts if part.kernel in ("qmm_rows", "gated_rows")
    )
    assert weights == pytest.approx(14.41e9, rel=0.01)
    assert cycle_work.total(parts).flops == pytest.approx(8 * 51.2e9, rel=0.02)


def test_a_state_is_read_and_written_once_per_cycle() -> None:
    (state,) = [
        part
        for part in cycle_work.verify_parts(QWEN38_27B, 8, 1)
        if part.kernel == "gated_delta_verify"
    ]
    # 302 MB of states, and the rows of two blocks
    assert 302e6 < state.total.bytes < 325e6


def test_a_long_context_adds_its_keys_and_values_once() -> None:
    short = cycle_work.total(cycle_work.verify_parts(QWEN38_27B, 8, 1024))
    long = cycle_work.total(cycle_work.verify_parts(QWEN38_27B, 8, 32_768))
    assert long.bytes - short.bytes == (32_768 - 1024) * 64 * 1024


def test_a_cycle_with_a_drafter_of_four_bits() -> None:
    work = cycle_work.cycle_work(QWEN38_27B, DFLASH2_27B, 8, 1024)
    assert work.bytes == pytest.approx(16.5e9, rel=0.03)
    chip = roofline.find_chip("Apple M4 Pro", 20)
    assert chip is not None
    assert 0.055 < chip.seconds(work) < 0.065


@pytest.mark.parametrize(
    ("device", "cores", "gigabytes"),
    [
        ("Apple M1", 8, 68),
        ("Apple M3 Max", 30, 307),
        ("Apple M3 Max", 40, 410),
        ("Apple M4 Max", 32, 410),
        ("Apple M5", 10, 153),
    ],
)
def test_a_chip_is_found_by_name_and_cores(
    device: str, cores: int, gigabytes: float
) -> None:
    chip = roofline.find_chip(device, cores)
    assert chip is not None
    assert chip.bandwidth == gigabytes * 1e9


def test_an_unknown_device_has_no_limit() -> None:
    assert roofline.find_chip("Apple Paravirtual device") is None


def test_a_run_is_compared_with_what_bounds_it() -> None:
    chip = roofline.Chip("any", 1, 100.0, 1000.0)
    assert chip.seconds(Work(bytes=200, flops=500)) == 2.0
    assert chip.seconds(Work(bytes=200, flops=5000)) == 5.0
    assert roofline.share_of_limit(chip, Work(bytes=200), 4.0) == 0.5


def test_a_geometry_is_read_from_a_configuration() -> None:
    config = {
        "text_config": {
            "hidden_size": 5120,
            "num_hidden_layers": 64,
            "vocab_size": 248_320,
            "intermediate_size": 17_408,
            "num_attention_heads": 24,
            "num_key_value_heads": 4,
            "head_dim": 256,
            "full_attention_interval": 4,
            "linear_num_key_heads": 16,
            "linear_num_value_heads": 48,
            "linear_key_head_dim": 128,
            "linear_value_head_dim": 128,
            "linear_conv_kernel_dim": 4,
        },
        "quantization": {"bits": 4, "group_size": 64},
    }
    assert Geometry.of(config) == QWEN38_27B
