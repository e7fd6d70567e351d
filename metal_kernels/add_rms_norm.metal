// SPDX-License-Identifier: Apache-2.0
// stream = x + residual; normed = stream * weight / sqrt(mean(stream^2) + eps).
// One threadgroup per row; a thread has every THREADS-th channel and keeps its PER
// channels between the two passes. Reference: splashpy/kernels/add_rms_norm.py.
// Needs threadgroup_sum.metal.
#include <metal_stdlib>
using namespace metal;

// Scale, weigh and store a row whose channels lie in `values`, already rounded.
template <typename T, int PER, typename Weight>
inline void store_normed(
    thread const float* values, Weight weight, device T* normed, float eps,
    threadgroup float* slots, uint row, uint channels, uint thread_index, uint threads,
    uint lane, uint simdgroup, uint simdgroups) {
  float squares = 0.0f;
  for (int j = 0; j < PER; ++j) squares += values[j] * values[j];
  const float total = threadgroup_sum(squares, slots, lane, simdgroup, simdgroups);
  const float scale = precise::rsqrt(total / float(channels) + eps);
  for (int j = 0; j < PER; ++j) {
    const uint c = uint(j) * threads + thread_index;
    if (c < channels)
      normed[row * channels + c] =
          static_cast<T>(values[j] * scale * float(weight[c]));
  }
}

template <typename T, int PER, typename X, typename Residual, typename Weight>
inline void add_rms_norm_at(
    X x, Residual residual, Weight weight, device T* stream, device T* normed,
    float eps, threadgroup float* slots, uint row, uint channels, uint thread_index,
    uint threads, uint lane, uint simdgroup, uint simdgroups) {
  float values[PER];
  for (int j = 0; j < PER; ++j) {
    const uint c = uint(j) * threads + thread_index;
    const uint at = row * channels + c;
    values[j] = 0.0f;
    if (c < channels) {
      const T sum = static_cast<T>(float(x[at]) + float(residual[at]));
      stream[at] = sum;
      values[j] = float(sum);
    }
  }
  store_normed<T, PER>(values, weight, normed, eps, slots, row, channels, thread_index,
                       threads, lane, simdgroup, simdgroups);
}
