# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from kernels.launch_count import KERNEL, count_cycle


def test_a_cycle_with_kernels_takes_at_most_three_fifths_of_the_launches() -> None:
    # Qwen3.8-27B with its drafter, eight rows.
    stock, ours = count_cycle(kernels=False), count_cycle(kernels=True)
    assert stock.by_name["QuantizedMatmul"] > 500
    assert ours.by_name[KERNEL] > 500
    assert ours.total <= 0.6 * stock.total


def test_what_surrounds_a_recurrence_is_part_of_its_kernels() -> None:
    stock, ours = count_cycle(kernels=False), count_cycle(kernels=True)
    # 48 recurrent layers, and a roll back between the two cycles.
    assert stock.by_name["Convolution"] == 48
    assert ours.by_name["Convolution"] == 0
    assert stock.by_name["Concatenate"] >= 48
    assert ours.by_name["Concatenate"] < 16
