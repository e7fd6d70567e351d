# SPDX-License-Identifier: Apache-2.0
"""Correct kernels, each with an input and numpy's answer.

They are written the way kernels for ``mx.fast.metal_kernel`` are usually written, and
together they use every part of the emulator. ``test_bugs.py`` breaks them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import mlx.core as mx
import numpy as np
from msl.emulator import EmulatedKernel, Emulation, Report
from msl.signature import TemplateValue

_RNG = np.random.default_rng(7)


@dataclass(frozen=True, slots=True)
class Case:
    """One launch of one kernel.

    Attributes:
        source: body of the kernel.
        inputs: arrays by name, in order.
        outputs: (shape, dtype) by name, in order.
        expected: numpy's answer by output name.
        grid: threads.
        threadgroup: threads of one threadgroup.
        tolerance: largest difference allowed, with its reason beside the case.
        header: text before the function.
        template: (parameter, value) in order.
        init_value: what outputs hold before the launch.
        atomic_outputs: outputs are atomics.
        row_contiguous: inputs are copied to be row contiguous.
    """

    source: str
    inputs: Mapping[str, np.ndarray | mx.array]
    outputs: Mapping[str, tuple[tuple[int, ...], mx.Dtype]]
    expected: Mapping[str, np.ndarray]
    grid: tuple[int, int, int]
    threadgroup: tuple[int, int, int]
    tolerance: float = 0.0
    header: str = ""
    template: tuple[tuple[str, TemplateValue], ...] = ()
    init_value: float | None = None
    atomic_outputs: bool = False
    row_contiguous: bool = True

    def replaced(self, right: str, wrong: str) -> Case:
        """The same case with one place of its text changed."""
        text = self.header + self.source
        if text.count(right) != 1:
            raise ValueError(f"{right!r} occurs {text.count(right)} times, not once")
        return replace(
            self,
            source=self.source.replace(right, wrong),
            header=self.header.replace(right, wrong),
        )

    def launch(self, emulation: Emulation | None = None) -> Report:
        """Run it."""
        kernel = EmulatedKernel(
            "case",
            list(self.inputs),
            list(self.outputs),
            self.source,
            self.header,
            self.row_contiguous,
            self.atomic_outputs,
        )
        return kernel.launch(
            inputs=list(self.inputs.values()),
            output_shapes=[shape for shape, _ in self.outputs.values()],
            output_dtypes=[dtype for _, dtype in self.outputs.values()],
            grid=self.grid,
            threadgroup=self.threadgroup,
            template=self.template,
            init_value=self.init_value,
            emulation=emulation,
        )


def _normal(*shape: int) -> np.ndarray:
    return _RNG.standard_normal(shape).astype(np.float32)


def _elementwise() -> Case:
    x, y = _normal(50), _normal(50)
    return Case(
        """
        uint i = thread_position_in_grid.x;
        if (i >= uint(x_shape[0])) return;
        float scaled[2] = {x[i], y[i]};
        for (int j = 0; j < 2; ++j) scaled[j] *= scale;
        out[i] = scaled[0] + scaled[1];
        """,
        {"x": x, "y": y, "scale": np.array(0.5, np.float32)},
        {"out": ((50,), mx.float32)},
        {"out": x * np.float32(0.5) + y * np.float32(0.5)},
        grid=(64, 1, 1),
        threadgroup=(32, 1, 1),
    )


def _threadgroup_sum() -> Case:
    # Small integers: every order of summation is exact.
    x = _RNG.integers(-9, 9, (3, 128)).astype(np.float32)
    return Case(
        """
        threadgroup float part[128];
        uint i = thread_position_in_threadgroup.x;
        uint row = threadgroup_position_in_grid.x;
        part[i] = x[row * 128 + i];
        threadgroup_barrier(mem_flags::mem_threadgroup);
        for (uint half_way = 64; half_way > 0; half_way /= 2) {
          if (i < half_way) part[i] += part[i + half_way];
          threadgroup_barrier(mem_flags::mem_threadgroup);  // each round
        }
        if (i == 0) out[row] = part[0];
        """,
        {"x": x},
        {"out": ((3,), mx.float32)},
        {"out": x.sum(1)},
        grid=(384, 1, 1),
        threadgroup=(128, 1, 1),
    )


def _rms_norm() -> Case:
    x = mx.array(_normal(5, 64)).astype(mx.bfloat16)
    weight = mx.array(_normal(64)).astype(mx.bfloat16)
    wide = np.array(x.astype(mx.float32))
    norm = wide / np.sqrt((wide**2).mean(1, keepdims=True) + 1e-6)
    return Case(
        """
        threadgroup float part[N / 32];
        uint i = thread_position_in_threadgroup.x;
        uint at = threadgroup_position_in_grid.x * N + i;
        float value = float(x[at]);
        float sum = simd_sum(value * value);
        if (thread_index_in_simdgroup == 0) part[simdgroup_index_in_threadgroup] = sum;
        threadgroup_barrier(mem_flags::mem_threadgroup);
        float total = 0.0;
        for (uint s = 0; s < N / 32; ++s) total += part[s];
        float scale = metal::precise::rsqrt(total / N + eps[0]);
        out[at] = static_cast<T>(value * scale * (CENTRED ? 1 + weight[i] : weight[i]));
        """,
        {"x": x, "weight": weight, "eps": np.array([1e-6], np.float32)},
        {"out": ((5, 64), mx.bfloat16)},
        {"out": norm * np.array(weight.astype(mx.float32))},
        grid=(320, 1, 1),
        threadgroup=(64, 1, 1),
        tolerance=2**-6,  # half an ulp of bfloat16 for results below 8
        template=(("T", mx.bfloat16), ("N", 64), ("CENTRED", False)),
    )


def _matmul() -> Case:
    a, b = _normal(16, 24), _normal(16, 24)
    return Case(
        """
        // Two simdgroups, eight rows of the result each; b is stored transposed.
        uint row = simdgroup_index_in_threadgroup * 8;
        uint column = threadgroup_position_in_grid.x * 8;
        simdgroup_float8x8 left, right, sum(0.0f);
        for (uint k = 0; k < 24; k += 8) {
          simdgroup_load(left, a + row * 24 + k, 24);
          simdgroup_load(right, b + column * 24 + k, 24, ulong2(0, 0), true);
          simdgroup_multiply_accumulate(sum, left, right, sum);
        }
        simdgroup_store(sum, out + row * 16 + column, 16);
        """,
        {"a": a, "b": b},
        {"out": ((16, 16), mx.float32)},
        {"out": a @ b.T},
        grid=(128, 1, 1),
        threadgroup=(64, 1, 1),
        tolerance=1e-5,  # 24 float32 products of size one, in another order
    )


def _histogram() -> Case:
    x = _RNG.integers(0, 8, 200).astype(np.uint32)
    return Case(
        """
        threadgroup atomic_uint local[8];
        uint i = thread_position_in_grid.x;
        uint lane = thread_position_in_threadgroup.x;
        if (lane < 8) atomic_store_explicit(&local[lane], 0u, memory_order_relaxed);
        threadgroup_barrier(mem_flags::mem_threadgroup);
        if (i < uint(x_shape[0]))
          atomic_fetch_add_explicit(&local[x[i]], 1u, memory_order_relaxed);
        threadgroup_barrier(mem_flags::mem_threadgroup);  // counted
        if (lane < 8) {
          uint n = atomic_load_explicit(&local[lane], memory_order_relaxed);
          atomic_fetch_add_explicit(&out[lane], n, memory_order_relaxed);
        }
        """,
        {"x": x},
        {"out": ((8,), mx.uint32)},
        {"out": np.bincount(x, minlength=8)},
        grid=(256, 1, 1),
        threadgroup=(64, 1, 1),
        init_value=0,
        atomic_outputs=True,
    )


def _transpose() -> Case:
    x = _normal(16, 16)
    return Case(
        """
        threadgroup float tile[8][9];
        uint2 at = thread_position_in_threadgroup.xy;
        uint2 corner = threadgroup_position_in_grid.xy * 8;
        tile[at.y][at.x] = x[(corner.y + at.y) * 16 + corner.x + at.x];
        threadgroup_barrier(mem_flags::mem_threadgroup);
        out[(corner.x + at.y) * 16 + corner.y + at.x] = tile[at.x][at.y];
        """,
        {"x": x},
        {"out": ((16, 16), mx.float32)},
        {"out": x.T},
        grid=(16, 16, 1),
        threadgroup=(8, 8, 1),
    )


def _strided() -> Case:
    x = _normal(12, 10)[::2, 1:6]
    return Case(
        """
        uint i = thread_position_in_grid.x;
        out[i] = x[elem_to_loc(i, x_shape, x_strides, x_ndim)];
        """,
        {"x": x},
        {"out": ((30,), mx.float32)},
        {"out": x.ravel()},
        grid=(30, 1, 1),
        threadgroup=(30, 1, 1),
        row_contiguous=False,
    )


def _simdgroup_exchange() -> Case:
    x = _normal(64)
    return Case(
        """
        threadgroup float slot[64];
        uint i = thread_position_in_threadgroup.x;
        slot[i] = x[i];
        simdgroup_barrier(mem_flags::mem_threadgroup);
        float other = slot[i ^ 1];
        float first = simd_shuffle(other, 0);
        float below = simd_shuffle_up(other, 1);
        float all_below = simd_prefix_exclusive_sum(1.0f);
        out[i] = other + first + below + all_below;
        """,
        {"x": x},
        {"out": ((64,), mx.float32)},
        {"out": _exchanged(x)},
        grid=(64, 1, 1),
        threadgroup=(64, 1, 1),
        tolerance=1e-5,  # three float32 additions
    )


def _exchanged(x: np.ndarray) -> np.ndarray:
    other = x.reshape(-1, 2)[:, ::-1].reshape(2, 32)
    below = np.concatenate([other[:, :1], other[:, :-1]], 1)
    return (other + other[:, :1] + below + np.arange(32)).ravel()


def _dequantize() -> Case:
    packed = _RNG.integers(0, 2**32, (2, 8), dtype=np.uint32)
    scales = _normal(2, 2)
    nibbles = (packed[..., None] >> (4 * np.arange(8, dtype=np.uint32))) & 15
    wide = nibbles.reshape(2, 64).astype(np.float32) * np.repeat(scales, 32, 1)
    return Case(
        """
        uint i = thread_position_in_grid.x;
        float scale = scales[i / 4];
        float4 low, high;
        unpack(packed[i], low, high);
        device float4* to = (device float4*)(out + i * 8);
        to[0] = low * scale;
        to[1] = high * scale;
        """,
        {"packed": packed, "scales": scales},
        {"out": ((2, 64), mx.float32)},
        {"out": wide},
        grid=(16, 1, 1),
        threadgroup=(16, 1, 1),
        header="""
        inline void unpack(uint word, thread float4& low, thread float4& high) {
          for (int j = 0; j < 4; ++j) {
            low[j] = float((word >> (4 * j)) & 15);
            high[j] = float((word >> (4 * j + 16)) & 15);
          }
        }
        """,
    )


def _neighbours() -> Case:
    # Through device memory inside one threadgroup: the barrier must name it.
    x = _normal(2, 32)
    return Case(
        """
        uint i = thread_position_in_grid.x;
        scratch[i] = x[i] * 2;
        threadgroup_barrier(mem_flags::mem_device);
        out[i] = scratch[i ^ 31];
        """,
        {"x": x},
        {"scratch": ((64,), mx.float32), "out": ((64,), mx.float32)},
        {"scratch": 2 * x.ravel(), "out": 2 * x[:, ::-1].ravel()},
        grid=(64, 1, 1),
        threadgroup=(32, 1, 1),
    )


CASES = {
    "elementwise": _elementwise(),
    "threadgroup_sum": _threadgroup_sum(),
    "rms_norm": _rms_norm(),
    "matmul": _matmul(),
    "histogram": _histogram(),
    "transpose": _transpose(),
    "strided": _strided(),
    "simdgroup_exchange": _simdgroup_exchange(),
    "dequantize": _dequantize(),
    "neighbours": _neighbours(),
}
