// SPDX-License-Identifier: Apache-2.0
// One path through the best candidates of consecutive slots, by one threadgroup: its
// simdgroups merge the shards' lists, score transitions and walk.
// Reference: splashpy/kernels/candidate_selector.py. Needs top_tokens.metal.
#include <metal_stdlib>
using namespace metal;

// Candidates of every slot: their tokens and their own scores, multiplied and capped
// the way the drafter wants them. The map from places of the head to tokens counts when
// MAPPED. A barrier must follow.
template <int SLOTS, int C, int LISTS, bool MAPPED, typename Values, typename Ids,
          typename Tokens>
inline void gather_candidates_at(
    Values values, Ids ids, Tokens tokens, threadgroup float* unary,
    threadgroup uint* candidates, float multiplier, float cap, uint shards, uint vocab,
    uint lane, uint simdgroup, uint simdgroups) {
  for (uint slot = simdgroup; slot < uint(SLOTS); slot += simdgroups) {
    threadgroup float* own = unary + slot * uint(C);
    threadgroup uint* chosen = candidates + slot * uint(C);
    merge_lists_at<C, LISTS>(values, ids, own, chosen, slot, shards, lane);
    if (lane == 0) {
      for (int c = 0; c < C; ++c) {
        const float raw = own[c] * multiplier;
        own[c] = cap > 0.0f ? cap * precise::tanh(raw / cap) : raw;
        const uint token = MAPPED ? uint(tokens[chosen[c]]) : chosen[c];
        chosen[c] = min(token, vocab - 1u);
      }
    }
  }
}

// How well `token` follows `previous`, by one simdgroup.
template <int RANK, typename Gate, typename Before, typename After>
inline float transition(
    Gate gate, Before predecessor, After successor, uint slot, uint previous,
    uint token, uint lane) {
  float sum = 0.0f;
  for (uint r = lane; r < uint(RANK); r += 32u)
    sum += float(predecessor[previous * uint(RANK) + r]) *
           float(gate[slot * uint(RANK) + r]) *
           float(successor[token * uint(RANK) + r]);
  return simd_sum(sum);
}

// Take the best candidate after the one taken before; with DRAWN the best of score /
// temperature + noise, whose distribution goes to `probs`. `scores` holds 2 * C floats.
template <int SLOTS, int C, int RANK, bool DRAWN, bool NOISE_BY_TOKEN, typename Gate,
          typename Before, typename After, typename Noise>
inline void walk_at(
    threadgroup const float* unary, threadgroup const uint* candidates,
    threadgroup float* scores, Gate gate, Before predecessor, After successor,
    Noise noise, device int* path, device int* offered, device float* probs,
    float temperature, uint anchor, uint vocab, uint thread_index, uint lane,
    uint simdgroup, uint simdgroups) {
  uint previous = anchor;
  for (uint slot = 0; slot < uint(SLOTS); ++slot) {
    // Two rows of scores by turns: one barrier per slot is enough.
    threadgroup float* row = scores + (slot & 1u) * uint(C);
    threadgroup const uint* tokens = candidates + slot * uint(C);
    for (uint c = simdgroup; c < uint(C); c += simdgroups) {
      const float after = transition<RANK>(gate, predecessor, successor, slot,
                                           previous, tokens[c], lane);
      if (lane == 0) row[c] = unary[slot * uint(C) + c] + after;
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    float top = row[0];
    for (uint c = 1; c < uint(C); ++c) top = max(top, row[c]);
    uint best = 0;
    float best_score = 0.0f;
    float total = 0.0f;
    for (uint c = 0; c < uint(C); ++c) {
      float score = row[c];
      if (DRAWN) {
        score = (score - top) / temperature;
        total += precise::exp(score);
        score += noise[NOISE_BY_TOKEN ? slot * vocab + tokens[c] : slot * uint(C) + c];
      }
      if (c == 0 || score > best_score) {
        best = c;
        best_score = score;
      }
    }
    previous = tokens[best];
    if (thread_index == 0) path[slot] = int(previous);
    if (DRAWN && thread_index < uint(C)) {
      const uint to = slot * uint(C) + thread_index;
      offered[to] = int(tokens[thread_index]);
      probs[to] = precise::exp((row[thread_index] - top) / temperature) / total;
    }
  }
}

// One simdgroup: the candidate with the largest q * (1 + ahead), where q is the softmax
// of C scores; its index, and that product in `worth`.
template <int C>
inline uint best_with_future(
    threadgroup const float* scores, threadgroup const float* ahead, bool last,
    thread float& worth, uint lane) {
  const bool real = lane < uint(C);
  const float score = real ? scores[lane] : -INFINITY;
  const float top = simd_max(score);
  const float part = real ? precise::exp(score - top) : 0.0f;
  const float total = simd_sum(part);
  const float future = real && !last ? ahead[lane] : 0.0f;
  const float expected = real ? part / total * (1.0f + future) : -1.0f;
  worth = simd_max(expected);
  return min(simd_min(expected == worth ? lane : 32u), uint(C) - 1u);  // NaN: the last
}

// The path with the largest expected number of accepted tokens. `table` holds
// C + (SLOTS - 1) * C * C scores, `ahead` 2 * C floats, `choice` SLOTS * C indices.
template <int SLOTS, int C, int RANK, typename Gate, typename Before, typename After>
inline void look_ahead_at(
    threadgroup const float* unary, threadgroup const uint* candidates,
    threadgroup float* table, threadgroup float* ahead, threadgroup uint* choice,
    Gate gate, Before predecessor, After successor, device int* path, uint anchor,
    uint thread_index, uint lane, uint simdgroup, uint simdgroups) {
  const uint edges = uint(C) + uint((SLOTS - 1) * C * C);
  for (uint edge = simdgroup; edge < edges; edge += simdgroups) {
    const bool first = edge < uint(C);
    const uint inner = edge - uint(C);
    const uint slot = first ? 0u : 1u + inner / uint(C * C);
    const uint from = inner / uint(C) % uint(C);
    const uint to = slot * uint(C) + (first ? edge : inner % uint(C));
    const uint previous = first ? anchor : candidates[(slot - 1u) * uint(C) + from];
    const float after = transition<RANK>(gate, predecessor, successor, slot, previous,
                                         candidates[to], lane);
    if (lane == 0) table[edge] = unary[to] + after;
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  for (uint slot = uint(SLOTS) - 1u; slot > 0; --slot) {
    threadgroup float* mine = ahead + (slot & 1u) * uint(C);
    threadgroup const float* later = ahead + ((slot + 1u) & 1u) * uint(C);
    for (uint from = simdgroup; from < uint(C); from += simdgroups) {
      const uint at = uint(C) + ((slot - 1u) * uint(C) + from) * uint(C);
      float worth = 0.0f;
      const uint best = best_with_future<C>(table + at, later, slot + 1u == uint(SLOTS),
                                            worth, lane);
      if (lane == 0) {
        mine[from] = worth;
        choice[slot * uint(C) + from] = best;
      }
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
  }
  if (simdgroup != 0) return;
  float worth = 0.0f;
  uint best = best_with_future<C>(table, ahead + uint(C), SLOTS == 1, worth, lane);
  if (thread_index != 0) return;
  for (uint slot = 0; slot < uint(SLOTS); ++slot) {
    if (slot > 0) best = choice[slot * uint(C) + best];
    path[slot] = int(candidates[slot * uint(C) + best]);
  }
}
