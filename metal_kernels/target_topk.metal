// SPDX-License-Identifier: Apache-2.0
// The distribution a token is drawn from, on the K tokens that top-k leaves: softmax at
// a temperature, cut by top-p and min-p, normalised, in order of the ids. One simdgroup
// per row merges the shards' lists; lane i has the i-th largest token.
// Reference: splashpy/kernels/target_topk.py. Needs top_tokens.metal.
#include <metal_stdlib>
using namespace metal;

// rule: temperature, top-p, min-p. `order` holds K integers.
template <int K, typename Rule>
inline void distribution_at(
    threadgroup const float* largest, threadgroup const uint* tokens,
    threadgroup uint* order, Rule rule, device int* ids, device float* probs,
    device bool* broken, uint row, uint lane) {
  const bool real = lane < uint(K);
  const uint at = real ? lane : 0u;
  const float top = largest[0];
  const float scaled = (largest[at] - top) / rule[0];
  const float weight = real ? precise::exp(scaled) : 0.0f;
  const float total = simd_sum(weight);
  const float earlier = simd_prefix_exclusive_sum(weight / total);
  const bool likely = rule[2] <= 0.0f || scaled >= precise::log(rule[2]);
  const bool stays = real && (lane == 0 || (likely && earlier < rule[1]));
  const float left = stays ? weight : 0.0f;
  const float mass = simd_sum(left);
  // What is cut comes after every token, with a chance of nothing.
  const uint key = stays ? tokens[at] : 0x40000000u + lane;
  if (real) order[lane] = key;
  simdgroup_barrier(mem_flags::mem_threadgroup);
  uint rank = 0;
  for (uint k = 0; k < uint(K); ++k) rank += order[k] < key ? 1u : 0u;
  if (real) {
    ids[row * uint(K) + rank] = int(key);
    probs[row * uint(K) + rank] = left / mass;
  }
  if (lane == 0) broken[row] = isnan(top);
}
