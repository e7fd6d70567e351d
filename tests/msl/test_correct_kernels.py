# SPDX-License-Identifier: Apache-2.0
"""Correct kernels run without a finding and give numpy's answer."""

from __future__ import annotations

from dataclasses import replace

import mlx.core as mx
import numpy as np
import pytest
from msl.cases import CASES
from msl.emulator import REDUCTIONS, EmulatedKernel, Emulation, KernelFault

pytestmark = pytest.mark.usefixtures("compiler")


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", CASES)
def test_a_correct_kernel_passes_and_equals_numpy(name: str, seed: int) -> None:
    case = CASES[name]
    report = case.launch(Emulation(seed=seed, reduction=REDUCTIONS[seed]))
    assert report.findings == []
    for output, array in zip(case.outputs, report.outputs, strict=True):
        got = np.array(array.astype(mx.float32))
        wanted = np.asarray(case.expected[output], np.float32)
        assert np.abs(got - wanted.reshape(got.shape)).max() <= case.tolerance


def test_a_template_value_changes_the_kernel() -> None:
    case = CASES["rms_norm"]
    centred = (*case.template[:2], ("CENTRED", True))
    plain = np.array(case.launch().outputs[0].astype(mx.float32))
    report = replace(case, template=centred).launch()
    assert report.findings == []
    weight = np.array(case.inputs["weight"].astype(mx.float32))
    wanted = case.expected["out"] / weight * (1 + weight)
    got = np.array(report.outputs[0].astype(mx.float32))
    assert np.abs(got - wanted).max() <= 2**-5  # 1 + weight is rounded as well
    assert np.abs(got - plain).max() > 0.5


def test_a_matrix_product_holds_for_half_operands() -> None:
    case = CASES["matmul"]
    inputs = {k: v.astype(np.float16) for k, v in case.inputs.items()}
    body = case.source.replace(
        "simdgroup_float8x8 left, right, sum(0.0f)",
        "simdgroup_half8x8 left, right; simdgroup_float8x8 sum(0.0f)",
    )
    report = replace(case, inputs=inputs, source=body).launch()
    wanted = inputs["a"].astype(np.float32) @ inputs["b"].astype(np.float32).T
    assert report.findings == []
    assert np.abs(np.array(report.outputs[0]) - wanted).max() <= 1e-5


def test_the_last_threadgroup_may_be_smaller() -> None:
    kernel = EmulatedKernel(
        "edge",
        ["x"],
        ["out"],
        "out[thread_position_in_grid.x] = simd_sum(x[thread_position_in_grid.x]) "
        "+ 1000 * threads_per_threadgroup.x;",
    )
    (out,) = kernel(
        inputs=[np.ones(40, np.float32)],
        output_shapes=[(40,)],
        output_dtypes=[mx.float32],
        grid=(40, 1, 1),
        threadgroup=(32, 1, 1),
        verbose=True,
    )
    assert out.tolist() == [32032.0] * 32 + [8008.0] * 8


def test_threadgroup_variables_of_two_blocks_may_share_a_name() -> None:
    kernel = EmulatedKernel(
        "blocks",
        ["x"],
        ["out"],
        """
        uint i = thread_position_in_threadgroup.x;
        {
          threadgroup float part[2];
          if (i < 2) part[i] = x[i];
          threadgroup_barrier(mem_flags::mem_threadgroup);
          out[i] = part[0];
        }
        {
          threadgroup float part[8];
          part[i] = x[i];
          threadgroup_barrier(mem_flags::mem_threadgroup);
          out[i] += part[7 - i];
        }
        """,
    )
    (out,) = kernel(
        inputs=[np.arange(1, 9, dtype=np.float32)],
        output_shapes=[(8,)],
        output_dtypes=[mx.float32],
        grid=(8, 1, 1),
        threadgroup=(8, 1, 1),
    )
    assert out.tolist() == [9.0 - i for i in range(8)]


def test_a_seed_decides_the_order_of_lanes_and_threadgroups() -> None:
    kernel = EmulatedKernel(
        "ticket",
        ["x"],
        ["out"],
        "uint i = thread_position_in_grid.x; atomic_store_explicit(&out[i + 1], "
        "atomic_fetch_add_explicit(&out[0], x[0], memory_order_relaxed), "
        "memory_order_relaxed);",
        atomic_outputs=True,
    )

    def order(seed: int) -> list[int]:
        report = kernel.launch(
            inputs=[np.ones(1, np.uint32)],
            output_shapes=[(97,)],
            output_dtypes=[mx.uint32],
            grid=(96, 1, 1),
            threadgroup=(48, 1, 1),
            init_value=0,
            emulation=Emulation(seed=seed),
        )
        assert report.findings == []
        return np.array(report.outputs[0])[1:].tolist()

    assert order(1) == order(1)
    assert sorted(order(1)) == sorted(order(2)) == list(range(96))
    assert order(1) != order(2)


def test_a_reduction_runs_in_the_order_that_is_asked_for() -> None:
    # 1e8 swallows a one that is added to it alone, but not a sum of them.
    values = np.array([1e8] + [1.0] * 30 + [-1e8], np.float32)
    kernel = EmulatedKernel(
        "order", ["x"], ["out"], "out[0] = simd_sum(x[thread_position_in_grid.x]);"
    )
    answers = []
    for reduction in REDUCTIONS:
        report = kernel.launch(
            inputs=[values],
            output_shapes=[(1,)],
            output_dtypes=[mx.float32],
            grid=(32, 1, 1),
            threadgroup=(32, 1, 1),
            emulation=Emulation(reduction=reduction),
        )
        assert report.kinds == {"race"}  # every lane stores the same sum
        answers.append(report.outputs[0].item())
    butterfly, ascending, _ = answers
    assert ascending == 0.0
    assert butterfly != ascending


def test_traffic_counts_every_load_and_every_byte_once_per_threadgroup() -> None:
    traffic = CASES["matmul"].launch().traffic
    # Two threadgroups read all of a; each reads its half of b, once per simdgroup.
    assert traffic["a"].fetched == 2 * 16 * 24 * 4
    assert traffic["b"].fetched == 16 * 24 * 4
    assert traffic["b"].read == 2 * 16 * 24 * 4
    assert traffic["out"].written == 16 * 16 * 4


def test_a_kernel_object_of_mlx_can_be_replaced(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(mx.fast, "metal_kernel", EmulatedKernel)

    def launch(source: str) -> list[mx.array]:
        kernel = mx.fast.metal_kernel(
            name="double", input_names=["x"], output_names=["out"], source=source
        )
        return kernel(
            inputs=[mx.arange(8, dtype=mx.float16)],
            output_shapes=[(8,)],
            output_dtypes=[mx.float16],
            grid=(8, 1, 1),
            threadgroup=(8, 1, 1),
        )

    right = "uint i = thread_position_in_grid.x; out[i] = x[i] + x[i];"
    assert launch(right)[0].tolist() == [2.0 * i for i in range(8)]
    with pytest.raises(KernelFault, match=r"out-of-bounds: thread \(7,0,0\)"):
        launch(right.replace("= x[i] +", "= x[i + 1] +"))
