// SPDX-License-Identifier: Apache-2.0
// 8 x 8 matrices spread over a simdgroup: lane l has the elements (tile_row(l),
// tile_column(l)) and its right neighbour. MLX's own kernels rely on the same map.
#include <metal_stdlib>
#include <metal_simdgroup_matrix>
using namespace metal;

inline uint tile_row(uint lane) { return ((lane / 4) & 4) + (lane / 2) % 4; }
inline uint tile_column(uint lane) { return 2 * ((lane / 4) & 2) + 2 * (lane % 2); }

// left * right + sum. Accumulators are ordinary numbers between two products: an
// accumulator matrix that is read in a loop ends up in memory.
inline float2 multiply_add(float2 left, float2 right, float2 sum) {
  simdgroup_float8x8 a, b, c;
  a.thread_elements()[0] = left.x;
  a.thread_elements()[1] = left.y;
  b.thread_elements()[0] = right.x;
  b.thread_elements()[1] = right.y;
  c.thread_elements()[0] = sum.x;
  c.thread_elements()[1] = sum.y;
  simdgroup_multiply_accumulate(c, a, b, c);
  return float2(c.thread_elements()[0], c.thread_elements()[1]);
}

// Over the lanes that share a column, for each of a lane's two columns.
inline float2 sum_over_rows(float2 value) {
  value += simd_shuffle_xor(value, 2);
  value += simd_shuffle_xor(value, 4);
  value += simd_shuffle_xor(value, 16);
  return value;
}

// Over the lanes that share a row.
inline float sum_over_columns(float value) {
  value += simd_shuffle_xor(value, 1);
  value += simd_shuffle_xor(value, 8);
  return value;
}

inline float max_over_columns(float value) {
  value = max(value, simd_shuffle_xor(value, 1));
  return max(value, simd_shuffle_xor(value, 8));
}
