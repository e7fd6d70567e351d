// SPDX-License-Identifier: Apache-2.0
// out[b,t,c] = sum over w of (base[w,c] + predicted[b,t,w,c/G]) * x[b,t-w,c], x being
// 0 before t = 0. `predicted` holds the corrections of both sides of a sublayer, SIDE
// says whose come first; `base` has one side's taps.
// Reference: splashpy/kernels/dynamic_causal_conv.py. Needs threadgroup_sum.metal and
// add_rms_norm.metal.
#include <metal_stdlib>
using namespace metal;

// One channel of row `row`, which is row t of its block.
template <int TAPS, int GROUP_SIZE, int SIDE, typename X, typename Predicted,
          typename Base>
inline float convolved(
    X x, Predicted predicted, Base base, uint row, uint t, uint c, uint channels) {
  const uint groups = channels / GROUP_SIZE;
  float sum = 0.0f;
  for (uint w = 0; w < uint(TAPS) && w <= t; ++w) {
    const uint tap = row * uint(2 * TAPS) + uint(SIDE * TAPS) + w;
    const float weight = float(base[w * channels + c]) +
                         float(predicted[tap * groups + c / GROUP_SIZE]);
    sum += weight * float(x[(row - w) * channels + c]);
  }
  return sum;
}

// One thread per channel and row.
template <typename T, int TAPS, int GROUP_SIZE, typename X, typename Predicted,
          typename Base>
inline void conv_prepare_at(
    X x, Predicted predicted, Base base, device T* out, uint c, uint row, uint channels,
    uint length) {
  if (c >= channels) return;
  out[row * channels + c] = static_cast<T>(convolved<TAPS, GROUP_SIZE, 0>(
      x, predicted, base, row, row % length, c, channels));
}

// stream = residual + convolution, one thread per channel and row.
template <typename T, int TAPS, int GROUP_SIZE, typename X, typename Predicted,
          typename Base, typename Residual>
inline void conv_add_at(
    X x, Predicted predicted, Base base, Residual residual, device T* stream, uint c,
    uint row, uint channels, uint length) {
  if (c >= channels) return;
  const float sum = convolved<TAPS, GROUP_SIZE, 1>(x, predicted, base, row,
                                                   row % length, c, channels);
  const uint at = row * channels + c;
  stream[at] = static_cast<T>(float(residual[at]) + sum);
}

// The same and the RMS norm of the stream. One threadgroup per row; a thread has every
// THREADS-th channel and keeps its PER channels.
template <typename T, int TAPS, int GROUP_SIZE, int PER, typename X,
          typename Predicted, typename Base, typename Residual, typename Weight>
inline void conv_finish_at(
    X x, Predicted predicted, Base base, Residual residual, Weight weight,
    device T* stream, device T* normed, float eps, threadgroup float* slots, uint row,
    uint length, uint channels, uint thread_index, uint threads, uint lane,
    uint simdgroup, uint simdgroups) {
  float values[PER];
  for (int j = 0; j < PER; ++j) {
    const uint c = uint(j) * threads + thread_index;
    const uint at = row * channels + c;
    values[j] = 0.0f;
    if (c < channels) {
      const float sum = convolved<TAPS, GROUP_SIZE, 1>(x, predicted, base, row,
                                                       row % length, c, channels);
      const T rounded = static_cast<T>(float(residual[at]) + sum);
      stream[at] = rounded;
      values[j] = float(rounded);
    }
  }
  store_normed<T, PER>(values, weight, normed, eps, slots, row, channels, thread_index,
                       threads, lane, simdgroup, simdgroups);
}
