# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from kernels.launch_count import KERNEL, count_cycle


def test_a_cycle_with_kernels_takes_at_most_three_fifths_of_the_launches() -> None:
    # Qwen3.8-27B with its drafter, eight rows.
    stock, ours = count_cycle(kernels=False), count_cycle(kernels=True)
    assert stock.by_name["QuantizedMatmul"] > 500
    assert ours.by_name[KERNEL] > 500
    assert ours.total <= 0.6 * stock.total


def test_going_back_into_a_block_takes_no_launch_of_its_own() -> None:
    ours = count_cycle(kernels=True)
    stock = count_cycle(kernels=False)
    # 48 recurrent layers: the convolution and what surrounds it are gone.
    assert stock.by_name["Convolution"] == 48
    assert ours.by_name["Convolution"] == 0
