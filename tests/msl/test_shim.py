# SPDX-License-Identifier: Apache-2.0
"""The stand-ins for Metal's types and functions compute what they promise."""

from __future__ import annotations

from collections.abc import Sequence

import mlx.core as mx
import numpy as np
import pytest
from msl.emulator import EmulatedKernel

pytestmark = pytest.mark.usefixtures("compiler")

FLOATS = np.concatenate(
    [
        np.random.default_rng(3).integers(0, 2**32, 4096, dtype=np.uint32),
        # halfway cases of both formats, the ends of their ranges, subnormals
        np.array(
            [
                0x3F801000, 0x3F803000, 0x3F808000, 0x3F818000, 0x477FEFFF, 0x477FF000,
                0x38800000, 0x387FF000, 0x33000000, 0x33000001, 0x33800000, 0x7F7FFFFF,
                0x7F800000, 0xFF800000, 0x7F7F8000, 0x80000000, 0x00000001, 0x7F7F7FFF,
            ],
            np.uint32,
        ),
    ]
).view(np.float32)  # fmt: skip


def run(
    source: str,
    inputs: Sequence[np.ndarray | mx.array],
    shape: tuple[int, ...],
    dtype: mx.Dtype = mx.float32,
    threads: int | None = None,
) -> mx.array:
    """Run ``source`` over inputs ``a``, ``b``, ... into ``out``."""
    names = list("abcd"[: len(inputs)])
    kernel = EmulatedKernel("shim", names, ["out"], source)
    (out,) = kernel(
        inputs=inputs,
        output_shapes=[shape],
        output_dtypes=[dtype],
        grid=(threads or int(np.prod(shape)), 1, 1),
        threadgroup=(32, 1, 1),
    )
    return out


def bits(array: mx.array) -> np.ndarray:
    """16-bit patterns, every NaN made the same."""
    wide = np.array(array.astype(mx.float32))
    return np.where(np.isnan(wide), 0x7FFF, np.array(array.view(mx.uint16)))


@pytest.mark.parametrize("dtype", [mx.float16, mx.bfloat16])
def test_rounding_from_float_equals_mlx(dtype: mx.Dtype) -> None:
    source = "uint i = thread_position_in_grid.x; out[i] = a[i];"
    got = run(source, [FLOATS], FLOATS.shape, dtype)
    assert (bits(got) == bits(mx.array(FLOATS).astype(dtype))).all()


@pytest.mark.parametrize("dtype", [mx.float16, mx.bfloat16])
def test_every_narrow_number_survives_the_way_through_float(dtype: mx.Dtype) -> None:
    every = mx.array(np.arange(65536, dtype=np.uint16)).view(dtype)
    source = "uint i = thread_position_in_grid.x; out[i] = float(a[i]);"
    assert (bits(run(source, [every], (65536,), dtype)) == bits(every)).all()


@pytest.mark.parametrize("dtype", [mx.float16, mx.bfloat16])
def test_arithmetic_rounds_after_every_operation(dtype: mx.Dtype) -> None:
    rng = np.random.default_rng(5)
    a, b = (mx.array(rng.standard_normal(512)).astype(dtype) for _ in range(2))
    source = "uint i = thread_position_in_grid.x; out[i] = (a[i] + b[i]) * b[i] / a[i];"
    wanted = ((a + b) * b) / a
    assert (bits(run(source, [a, b], (512,), dtype)) == bits(wanted)).all()


def test_a_narrow_number_with_a_float_is_a_float() -> None:
    a = mx.array([1.0] * 8).astype(mx.bfloat16)
    source = "uint i = thread_position_in_grid.x; out[i] = a[i] + 0.001f;"
    assert run(source, [a], (8,)).tolist() == [np.float32(1.0) + np.float32(0.001)] * 8


def test_a_literal_without_a_suffix_is_a_float() -> None:
    source = "out[0] = sizeof(0.1) + sizeof(1.0 * a[0]);"
    assert run(source, [np.ones(8, np.float32)], (1,)).item() == 8.0


def test_types_have_the_sizes_and_alignments_of_the_device() -> None:
    sizes = {
        "half": 2, "bfloat": 2, "char": 1, "ushort": 2, "uint": 4, "ulong": 8,
        "float2": 8, "float3": 16, "float4": 16, "half3": 8, "half4": 8, "uchar4": 4,
        "packed_float3": 12, "packed_half4": 8, "bool4": 4, "bfloat4": 8,
        "atomic_uint": 4, "simdgroup_float8x8": 8,
    }  # fmt: skip
    alignments = {"float2": 8, "float3": 16, "half4": 8, "packed_float3": 4}
    body = [f"out[{i}] = sizeof({name});" for i, name in enumerate(sizes)]
    body += [
        f"out[{i}] = alignof({name});" for i, name in enumerate(alignments, len(sizes))
    ]
    wanted = [*sizes.values(), *alignments.values()]
    got = run("\n".join(body), [np.zeros(8, np.float32)], (len(wanted),), threads=1)
    assert got.tolist() == wanted


def test_vectors_are_built_and_picked_apart() -> None:
    source = """
    float4 v = float4(float2(a[0], a[1]), a[2], 4);
    v.xy = v.yx + 10;
    float3 w = v.zyx * 2.0f;
    uint2 n = uint2(float2(w.xy));
    v.w += dot(w, float3(1, 0, 1));
    bool order = all(v.xy > float2(1)) && !any(v == 0.0f);
    out[0] = v.x; out[1] = v.y; out[2] = v.z; out[3] = v[3];
    out[4] = n.x; out[5] = n.y; out[6] = order; out[7] = max(w, 25.0f).x;
    """
    a = np.array([1, 2, 3, 0, 0, 0, 0, 0], np.float32)
    wanted = [12, 11, 3, 4 + 6 + 24, 6, 22, 1, 25]
    assert run(source, [a], (8,), threads=1).tolist() == wanted


def test_mathematics_agrees_with_numpy() -> None:
    x = np.linspace(0.1, 3, 32, dtype=np.float32)
    functions = {
        "exp(v)": np.exp(x), "metal::precise::exp(v)": np.exp(x), "log2(v)": np.log2(x),
        "rsqrt(v)": 1 / np.sqrt(x), "fast::tanh(v)": np.tanh(x), "pow(v, 3)": x**3,
        "floor(v)": np.floor(x), "clamp(v, 1, 2)": np.clip(x, 1, 2),
        "select(v, -v, v > 1)": np.where(x > 1, -x, x), "abs(-v)": x,
        "fma(v, v, 1.0f)": x * x + 1, "log1p(v)": np.log1p(x),
    }  # fmt: skip
    body = "uint i = thread_position_in_grid.x; float v = a[i];\n"
    body += "\n".join(f"out[{k} * 32 + i] = {f};" for k, f in enumerate(functions))
    got = np.array(run(body, [x], (len(functions), 32), threads=32))
    np.testing.assert_allclose(got, np.stack(list(functions.values())), rtol=1e-6)


def test_max_leaves_out_a_nan_and_infinities_hold() -> None:
    source = """
    out[0] = max(NAN, 1.0f); out[1] = min(2.0f, NAN); out[2] = exp(-INFINITY);
    out[3] = isnan(INFINITY - INFINITY); out[4] = Limits<float>::min;
    out[5] = float(Limits<half>::finite_max); out[6] = a[0];
    """
    got = run(source, [np.zeros(8, np.float32)], (7,), threads=1)
    assert got.tolist() == [1.0, 2.0, 0.0, 1.0, -np.inf, 65504.0, 0.0]


def test_simdgroup_functions_agree_with_numpy() -> None:
    x = np.random.default_rng(9).integers(1, 50, 32).astype(np.int32)
    lanes = np.arange(32)
    functions = {
        "simd_sum(v)": np.full(32, x.sum()),
        "simd_max(v)": np.full(32, x.max()),
        "simd_xor(v)": np.full(32, np.bitwise_xor.reduce(x)),
        "simd_prefix_inclusive_sum(v)": np.cumsum(x),
        "simd_prefix_exclusive_sum(v)": np.cumsum(x) - x,
        "simd_shuffle(v, 31 - lane)": x[::-1],
        "simd_shuffle_xor(v, 5)": x[lanes ^ 5],
        "simd_shuffle_down(v, 3)": np.concatenate([x[3:], x[29:]]),
        "simd_shuffle_up(v, 3)": np.concatenate([x[:3], x[:29]]),
        "simd_shuffle_rotate_down(v, 3)": np.roll(x, -3),
        "simd_shuffle_and_fill_up(v, -v, 2)": np.concatenate([-x[30:], x[:30]]),
        "simd_broadcast(v, 7)": np.full(32, x[7]),
        "popcount(uint(uint64_t(simd_ballot(v > 25))))": np.full(32, (x > 25).sum()),
        "simd_any(v == a[3]) && !simd_all(v == a[3])": np.full(32, 1),
        "quad_sum(v)": np.repeat(x.reshape(8, 4).sum(1), 4),
        "quad_broadcast(v, 2)": np.repeat(x[2::4], 4),
    }
    body = "uint lane = thread_index_in_simdgroup; int v = a[lane];\n"
    body += "\n".join(f"out[{k} * 32 + lane] = {f};" for k, f in enumerate(functions))
    got = np.array(run(body, [x], (len(functions), 32), mx.int32, threads=32))
    for row, (name, wanted) in zip(got, functions.items(), strict=True):
        assert row.tolist() == wanted.tolist(), name


def test_a_matrix_lies_in_the_lanes_as_in_mlx_kernels() -> None:
    source = """
    uint lane = thread_index_in_simdgroup;
    simdgroup_float8x8 m;
    simdgroup_load(m, a, 8);
    out[2 * lane] = m.thread_elements()[0];
    out[2 * lane + 1] = m.thread_elements()[1];
    """
    got = np.array(run(source, [np.arange(64, dtype=np.float32)], (64,), threads=32))
    lane = np.arange(32)
    quad = lane // 4
    row = (quad & 4) + (lane // 2) % 4
    column = (quad & 2) * 2 + (lane % 2) * 2
    assert got.reshape(32, 2).tolist() == [[v, v + 1] for v in row * 8 + column]


def test_atomics_return_what_was_there() -> None:
    source = """
    threadgroup atomic_int cell;
    if (thread_index_in_threadgroup == 0)
      atomic_store_explicit(&cell, 5, memory_order_relaxed);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    int seen = atomic_fetch_max_explicit(&cell, 5 + a[0], memory_order_relaxed);
    int wanted = 99;
    bool swapped = atomic_compare_exchange_weak_explicit(
        &cell, &wanted, 1, memory_order_relaxed, memory_order_relaxed);
    out[0] = seen; out[1] = wanted; out[2] = swapped;
    out[3] = atomic_load_explicit(&cell, memory_order_relaxed);
    """
    got = run(source, [np.full(8, 2, np.int32)], (4,), mx.int32, threads=1)
    assert got.tolist() == [5, 7, 0, 7]
