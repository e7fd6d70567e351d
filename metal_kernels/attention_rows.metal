// SPDX-License-Identifier: Apache-2.0
// Attention of a few query rows over many keys. The rows of all query heads that share
// a key head form one matrix; eight of them belong to a simdgroup, or to two that
// divide a wide head. The keys are cut into blocks, one threadgroup each; a second
// launch combines the blocks in order. Scores are in units of log 2.
// Reference: splashpy/kernels/attention_rows.py. Needs matrix_tile.metal.
#include <metal_stdlib>
using namespace metal;

// Where a head's keys or values lie: numbers as they are, or 8-bit integers with a
// scale and a bias per 64 channels.
template <typename Numbers>
struct PlainRows {
  Numbers numbers;
  ulong stride;  // from one row to the next
};

template <typename Words, typename Scales>
struct PackedRows {
  Words words;
  Scales scales;
  Scales biases;
  ulong word_stride;
  ulong scale_stride;
};

// N neighbouring channels of a row, from channel d on.
template <int N, typename Numbers>
inline void load_row(
    thread const PlainRows<Numbers>& rows, uint row, uint d, thread float* to) {
  const ulong at = row * rows.stride + d;
  for (uint i = 0; i < uint(N); ++i) to[i] = float(rows.numbers[at + i]);
}

template <int N, typename Words, typename Scales>
inline void load_row(
    thread const PackedRows<Words, Scales>& rows, uint row, uint d, thread float* to) {
  const ulong group = row * rows.scale_stride + d / 64u;
  const float scale = float(rows.scales[group]);
  const float bias = float(rows.biases[group]);
  const ulong at = row * rows.word_stride + d / 4u;
  for (uint i = 0; i < uint(N) / 4u; ++i) {
    const uint word = rows.words[at + i];
    for (uint j = 0; j < 4u; ++j)
      to[4u * i + j] = scale * float((word >> (8u * j)) & 255u) + bias;
  }
}

// One block of keys for one key head. Row r of the ROWS query rows is row r % length of
// head r / length. `exchange` holds 128 pairs per simdgroup where PARTS is 2.
template <int D, int PARTS, bool CAUSAL, typename Queries, typename Keys,
          typename Values>
inline void attend_block_at(
    Queries queries, thread const Keys& keys, thread const Values& values,
    device float* sums, device float* largest, device float* totals,
    threadgroup float2* exchange, ulong head_stride, ulong row_stride, float scale,
    uint head, uint block, uint blocks, uint chunk, uint count, uint rows, uint length,
    uint first_tile, uint lane, uint simdgroup, uint simdgroups) {
  constexpr uint WIDTH = D / PARTS;      // channels of this simdgroup
  constexpr uint FRAGMENTS = WIDTH / 8;  // 8 x 8 matrices across them
  constexpr uint KEYS = 2;               // times eight keys per step
  const uint fm = tile_row(lane);
  const uint fn = tile_column(lane);
  const uint part = simdgroup % uint(PARTS);
  const uint row = (first_tile + simdgroup / uint(PARTS)) * 8u + fm;
  const uint start = part * WIDTH;

  // The order of channels inside a product is free: fragment j of a stretch of 64 takes
  // channel j of every eight, so that a lane's channels of a key lie side by side.
  float2 query[FRAGMENTS];
  const uint real = min(row, rows - 1u);
  const ulong from = (head * (rows / length) + real / length) * head_stride +
                     (real % length) * row_stride + start;
  for (uint j = 0; j < FRAGMENTS; ++j) {
    const ulong at = from + j / 8u * 64u + fn * 8u + j % 8u;
    query[j] = float2(float(queries[at]), float(queries[at + 8u])) * scale;
  }
  float2 out[FRAGMENTS];
  for (uint j = 0; j < FRAGMENTS; ++j) out[j] = float2(0.0f);
  float best = -INFINITY;
  float total = 0.0f;

  const uint begin = block * chunk;
  const uint end = min(begin + chunk, count);
  const uint seen = CAUSAL ? min(end, count - length + row % length + 1u) : end;
  uint turn = 0;
  for (uint first = begin; first < end; first += 8u * KEYS) {
    float2 scores[KEYS];
    for (uint t = 0; t < KEYS; ++t) {
      scores[t] = float2(0.0f);
      const uint key = first + t * 8u + fn;
      for (uint c = 0; c < FRAGMENTS / 8u; ++c) {
        float left[8];
        float right[8];
        const uint d = start + c * 64u + fm * 8u;
        load_row<8>(keys, min(key, end - 1u), d, left);
        load_row<8>(keys, min(key + 1u, end - 1u), d, right);
        for (uint j = 0; j < 8u; ++j)
          scores[t] = multiply_add(query[c * 8u + j], float2(left[j], right[j]),
                                   scores[t]);
      }
    }
    if (PARTS == 2) {
      // Two sets of slots by turns: one barrier per step is enough.
      threadgroup float2* slots = exchange + turn * simdgroups * 32u * KEYS;
      for (uint t = 0; t < KEYS; ++t)
        slots[(simdgroup * KEYS + t) * 32u + lane] = scores[t];
      threadgroup_barrier(mem_flags::mem_threadgroup);
      const uint pair = simdgroup - part;
      for (uint t = 0; t < KEYS; ++t)
        scores[t] = slots[(pair * KEYS + t) * 32u + lane] +
                    slots[((pair + 1u) * KEYS + t) * 32u + lane];
      turn = 1u - turn;
    }
    float top = -INFINITY;
    for (uint t = 0; t < KEYS; ++t) {
      const uint key = first + t * 8u + fn;
      if (key >= seen) scores[t].x = -INFINITY;
      if (key + 1u >= seen) scores[t].y = -INFINITY;
      top = max(top, max(scores[t].x, scores[t].y));
    }
    const float higher = max(best, max_over_columns(top));
    const bool nothing = higher == -INFINITY;
    const float shrink = nothing ? 1.0f : precise::exp2(best - higher);
    float added = 0.0f;
    for (uint t = 0; t < KEYS; ++t) {
      scores[t].x = nothing ? 0.0f : precise::exp2(scores[t].x - higher);
      scores[t].y = nothing ? 0.0f : precise::exp2(scores[t].y - higher);
      added += scores[t].x + scores[t].y;
    }
    total = total * shrink + sum_over_columns(added);
    best = higher;
    for (uint j = 0; j < FRAGMENTS; ++j) out[j] *= shrink;
    for (uint t = 0; t < KEYS; ++t) {
      // Column fn of every result is a stretch of FRAGMENTS channels of a value.
      float value[2 * FRAGMENTS];
      const uint key = min(first + t * 8u + fm, end - 1u);
      load_row<2 * FRAGMENTS>(values, key, start + fn * FRAGMENTS, value);
      for (uint j = 0; j < FRAGMENTS; ++j)
        out[j] = multiply_add(scores[t], float2(value[j], value[FRAGMENTS + j]),
                              out[j]);
    }
  }
  if (row >= rows) return;
  const uint at = (head * blocks + block) * rows + row;
  for (uint j = 0; j < FRAGMENTS; ++j) {
    sums[at * uint(D) + start + fn * FRAGMENTS + j] = out[j].x;
    sums[at * uint(D) + start + (fn + 1u) * FRAGMENTS + j] = out[j].y;
  }
  if (part == 0 && fn == 0) {
    largest[at] = best;
    totals[at] = total;
  }
}

// One threadgroup per query row: the weighted mean of its blocks. `weights` holds a
// float per block.
template <typename T, int D, typename Sums, typename Parts>
inline void combine_blocks_at(
    Sums sums, Parts largest, Parts totals, device T* out, threadgroup float* weights,
    uint head, uint row, uint rows, uint blocks, uint thread_index, uint threads) {
  float best = -INFINITY;
  for (uint b = 0; b < blocks; ++b)
    best = max(best, largest[(head * blocks + b) * rows + row]);
  for (uint b = thread_index; b < blocks; b += threads)
    weights[b] = precise::exp2(largest[(head * blocks + b) * rows + row] - best);
  threadgroup_barrier(mem_flags::mem_threadgroup);
  float total = 0.0f;
  for (uint b = 0; b < blocks; ++b)
    total += weights[b] * totals[(head * blocks + b) * rows + row];
  for (uint d = thread_index; d < uint(D); d += threads) {
    float sum = 0.0f;
    for (uint b = 0; b < blocks; ++b)
      sum += weights[b] * sums[((head * blocks + b) * rows + row) * uint(D) + d];
    out[(head * rows + row) * uint(D) + d] = static_cast<T>(sum / total);
  }
}
