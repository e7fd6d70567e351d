// SPDX-License-Identifier: Apache-2.0
// out[m,n] = sum over k of x[m,k] * (scale[n,k/G] * q[n,k] + bias[n,k/G]) for a few
// rows m: every packed word is read and taken apart once for all of them. The quantized
// matrix is the left operand of 8 x 8 products, the rows the right one; a group's
// integers are multiplied as they are, and its scale and bias are applied to the sums.
// The simdgroups of a threadgroup take the groups by turns. What is computed for a row
// does not depend on how many rows there are.
// Reference: splashpy/kernels/qmm_rows.py. Needs matrix_tile.metal.
#include <metal_stdlib>
using namespace metal;

// One simdgroup: 8 * COLUMNS outputs from `first` on, of 8 * TILES rows, over its share
// of the groups. A product's inner index runs over four words, two integers of each:
// integer j and the one half a word later, so that one shift and one mask take both out
// and a lane's x values lie side by side.
template <int BITS, int GROUP, int COLUMNS, int TILES, typename X, typename Words,
          typename Scales>
inline void quantized_tile(
    X x, Words words, Scales scales, Scales biases, thread float2* sums, uint first,
    uint outputs, uint inputs, uint rows, uint split, uint splits, uint lane) {
  constexpr uint PER_WORD = 32 / BITS;
  constexpr uint STEPS = PER_WORD / 2;
  constexpr uint BLOCK = 4 * PER_WORD;
  constexpr uint MASK = (1u << BITS) - 1u;
  const uint fm = tile_row(lane);
  const uint fn = tile_column(lane);
  const uint groups = inputs / uint(GROUP);
  for (int i = 0; i < COLUMNS * TILES; ++i) sums[i] = float2(0.0f);
  for (uint g = split; g < groups; g += splits) {
    float2 products[COLUMNS * TILES];
    float2 totals[TILES];
    for (int i = 0; i < COLUMNS * TILES; ++i) products[i] = float2(0.0f);
    for (int t = 0; t < TILES; ++t) totals[t] = float2(0.0f);
    for (uint k = g * uint(GROUP); k < (g + 1u) * uint(GROUP); k += BLOCK) {
      float2 values[TILES * STEPS];
      for (int t = 0; t < TILES; ++t)
        for (uint i = 0; i < 2; ++i) {
          const uint row = min(uint(t) * 8u + fn + i, rows - 1u);
          const uint at = row * inputs + k + PER_WORD * (fm / 2u) + STEPS * (fm & 1u);
          for (uint j = 0; j < STEPS; ++j) {
            values[uint(t) * STEPS + j][i] = float(x[at + j]);
            totals[t][i] += float(x[at + j]);
          }
        }
      for (int c = 0; c < COLUMNS; ++c) {
        const uint n = min(first + uint(c) * 8u + fm, outputs - 1u);
        const uint word = words[n * (inputs / PER_WORD) + k / PER_WORD + fn / 2u];
        for (uint j = 0; j < STEPS; ++j) {
          const float2 weight =
              float2(float((word >> (uint(BITS) * j)) & MASK),
                     float((word >> (uint(BITS) * (j + STEPS))) & MASK));
          for (int t = 0; t < TILES; ++t)
            products[c * TILES + t] = multiply_add(weight, values[uint(t) * STEPS + j],
                                                   products[c * TILES + t]);
        }
      }
    }
    for (int t = 0; t < TILES; ++t) totals[t] = sum_over_rows(totals[t]);
    for (int c = 0; c < COLUMNS; ++c) {
      const uint at = min(first + uint(c) * 8u + fm, outputs - 1u) * groups + g;
      const float scale = float(scales[at]);
      const float bias = float(biases[at]);
      for (int t = 0; t < TILES; ++t)
        sums[c * TILES + t] += scale * products[c * TILES + t] + bias * totals[t];
    }
  }
}

// Lay a simdgroup's sums out as [output][row].
template <int COLUMNS, int TILES>
inline void share_tile(
    thread const float2* sums, threadgroup float* shared, uint lane) {
  for (int c = 0; c < COLUMNS; ++c)
    for (int t = 0; t < TILES; ++t) {
      const uint at = (uint(c) * 8u + tile_row(lane)) * uint(8 * TILES) +
                      uint(t) * 8u + tile_column(lane);
      shared[at] = sums[c * TILES + t].x;
      shared[at + 1u] = sums[c * TILES + t].y;
    }
}

// The sum of one output over the simdgroups, always in their order.
inline float sum_of_shares(threadgroup const float* shared, uint at, uint size,
                           uint splits) {
  float sum = 0.0f;
  for (uint s = 0; s < splits; ++s) sum += shared[s * size + at];
  return sum;
}

template <typename T, int BITS, int GROUP, int COLUMNS, int TILES, typename X,
          typename Words, typename Scales>
inline void qmm_rows_at(
    X x, Words words, Scales scales, Scales biases, device T* out,
    threadgroup float* shared, uint tile, uint outputs, uint inputs, uint rows,
    uint thread_index, uint threads, uint lane, uint simdgroup, uint simdgroups) {
  constexpr uint SIZE = 64 * COLUMNS * TILES;
  const uint first = tile * uint(8 * COLUMNS);
  float2 sums[COLUMNS * TILES];
  quantized_tile<BITS, GROUP, COLUMNS, TILES>(x, words, scales, biases, sums, first,
                                              outputs, inputs, rows, simdgroup,
                                              simdgroups, lane);
  share_tile<COLUMNS, TILES>(sums, shared + simdgroup * SIZE, lane);
  threadgroup_barrier(mem_flags::mem_threadgroup);
  for (uint i = thread_index; i < SIZE; i += threads) {
    const uint n = i % uint(8 * COLUMNS);
    const uint row = i / uint(8 * COLUMNS);
    if (first + n < outputs && row < rows)
      out[row * outputs + first + n] = static_cast<T>(
          sum_of_shares(shared, n * uint(8 * TILES) + row, SIZE, simdgroups));
  }
}

// out = silu(x * gate) * (x * up), both products rounded before.
template <typename T, int BITS, int GROUP, int COLUMNS, int TILES, typename X,
          typename Words, typename Scales>
inline void gated_rows_at(
    X x, Words gate, Scales gate_scales, Scales gate_biases, Words up,
    Scales up_scales, Scales up_biases, device T* out, threadgroup float* shared,
    uint tile, uint outputs, uint inputs, uint rows, uint thread_index, uint threads,
    uint lane, uint simdgroup, uint simdgroups) {
  constexpr uint SIZE = 64 * COLUMNS * TILES;
  const uint first = tile * uint(8 * COLUMNS);
  threadgroup float* second = shared + simdgroups * SIZE;
  float2 sums[COLUMNS * TILES];
  quantized_tile<BITS, GROUP, COLUMNS, TILES>(x, gate, gate_scales, gate_biases, sums,
                                              first, outputs, inputs, rows, simdgroup,
                                              simdgroups, lane);
  share_tile<COLUMNS, TILES>(sums, shared + simdgroup * SIZE, lane);
  quantized_tile<BITS, GROUP, COLUMNS, TILES>(x, up, up_scales, up_biases, sums, first,
                                              outputs, inputs, rows, simdgroup,
                                              simdgroups, lane);
  share_tile<COLUMNS, TILES>(sums, second + simdgroup * SIZE, lane);
  threadgroup_barrier(mem_flags::mem_threadgroup);
  for (uint i = thread_index; i < SIZE; i += threads) {
    const uint n = i % uint(8 * COLUMNS);
    const uint row = i / uint(8 * COLUMNS);
    const uint at = n * uint(8 * TILES) + row;
    const T gate_sum = static_cast<T>(sum_of_shares(shared, at, SIZE, simdgroups));
    const T up_sum = static_cast<T>(sum_of_shares(second, at, SIZE, simdgroups));
    const float opened = float(gate_sum);
    const float value = float(up_sum);
    if (first + n < outputs && row < rows)
      out[row * outputs + first + n] =
          static_cast<T>(opened / (1.0f + precise::exp(-opened)) * value);
  }
}
