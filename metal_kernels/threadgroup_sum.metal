// SPDX-License-Identifier: Apache-2.0
// The sum of one number per thread over a threadgroup, for every thread. The order of
// the additions depends on the threadgroup's size alone.
#include <metal_stdlib>
using namespace metal;

// slots: one float per simdgroup. Another sum through the same slots needs a barrier
// before it.
inline float threadgroup_sum(
    float value, threadgroup float* slots, uint lane, uint simdgroup, uint simdgroups) {
  const float part = simd_sum(value);
  if (lane == 0) slots[simdgroup] = part;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  float total = 0.0f;
  for (uint s = 0; s < simdgroups; ++s) total += slots[s];
  return total;
}
