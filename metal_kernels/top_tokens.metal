// SPDX-License-Identifier: Apache-2.0
// The K largest of every row of logits, in two launches: threadgroups that each see a
// shard of a row keep its K largest, and one simdgroup per row merges the sorted lists.
// Larger values come first, equal values in order of their ids, numbers that are not
// numbers before all others. Reference: splashpy/kernels/top_tokens.py.
#include <metal_stdlib>
using namespace metal;

// An integer with the order of the floats; minus zero equals zero.
inline uint sort_key(float value) {
  if (isnan(value)) return 0xFFFFFFFFu;
  const uint bits = as_type<uint>(value + 0.0f);
  return (bits >> 31) != 0 ? ~bits : bits | 0x80000000u;
}

inline float key_value(uint key) {
  return as_type<float>((key >> 31) != 0 ? key & 0x7FFFFFFFu : ~key);
}

// An entry and its id; `none` comes after every token.
struct Entry {
  uint key;
  uint id;
};

constant constexpr uint NO_ID = 0xFFFFFFFFu;

inline bool before(uint key, uint id, uint other_key, uint other_id) {
  return key > other_key || (key == other_key && id < other_id);
}

inline Entry simd_first(Entry mine) {
  Entry best;
  best.key = simd_max(mine.key);
  best.id = simd_min(mine.key == best.key ? mine.id : NO_ID);
  return best;
}

// One threadgroup: the K largest of PER * threads entries of a row from `start` on. A
// thread keeps its PER entries and the first of them that is still wanted.
template <int K, int PER, typename Logits>
inline void top_shard_at(
    Logits logits, device float* values, device uint* ids, threadgroup uint* slots,
    uint vocab, uint row, uint shard, uint shards, uint thread_index, uint threads,
    uint lane, uint simdgroup, uint simdgroups) {
  const uint start = shard * uint(PER) * threads + thread_index;
  uint keys[PER];
  Entry mine = {0u, NO_ID};
  for (int j = 0; j < PER; ++j) {
    const uint id = start + uint(j) * threads;
    keys[j] = 0u;
    if (id < vocab) {
      keys[j] = sort_key(float(logits[row * vocab + id]));
      if (before(keys[j], id, mine.key, mine.id)) mine = {keys[j], id};
    }
  }
  for (int k = 0; k < K; ++k) {
    // Two sets of slots by turns: one barrier per round is enough.
    threadgroup uint* found = slots + (k & 1) * 64;
    const Entry part = simd_first(mine);
    if (lane == 0) {
      found[2 * simdgroup] = part.key;
      found[2 * simdgroup + 1] = part.id;
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    Entry best = {0u, NO_ID};
    for (uint s = 0; s < simdgroups; ++s)
      if (before(found[2 * s], found[2 * s + 1], best.key, best.id))
        best = {found[2 * s], found[2 * s + 1]};
    if (thread_index == 0) {
      const uint to = (row * shards + shard) * uint(K) + uint(k);
      values[to] = key_value(best.key);
      ids[to] = best.id;
    }
    if (mine.id == best.id && best.id != NO_ID) {
      // What comes next after the one taken; entries taken earlier come before it.
      const Entry taken = mine;
      mine = {0u, NO_ID};
      for (int j = 0; j < PER; ++j) {
        const uint id = start + uint(j) * threads;
        if (id < vocab && before(taken.key, taken.id, keys[j], id) &&
            before(keys[j], id, mine.key, mine.id))
          mine = {keys[j], id};
      }
    }
  }
}

// One simdgroup: merge `shards` sorted lists of K entries, at most 32 * LISTS of them,
// into the K largest values and their ids. Other lanes see them after a barrier.
template <int K, int LISTS, typename Values, typename Ids>
inline void merge_lists_at(
    Values values, Ids ids, threadgroup float* best_values, threadgroup uint* best_ids,
    uint row, uint shards, uint lane) {
  uint heads[LISTS];
  for (int j = 0; j < LISTS; ++j) heads[j] = 0u;
  for (int k = 0; k < K; ++k) {
    Entry mine = {0u, NO_ID};
    int from = 0;
    for (int j = 0; j < LISTS; ++j) {
      const uint list = uint(j) * 32u + lane;
      if (list < shards && heads[j] < uint(K)) {
        const uint at = (row * shards + list) * uint(K) + heads[j];
        const uint id = ids[at];
        const uint key = id == NO_ID ? 0u : sort_key(values[at]);
        if (before(key, id, mine.key, mine.id)) {
          mine = {key, id};
          from = j;
        }
      }
    }
    const Entry best = simd_first(mine);
    if (mine.id == best.id && best.id != NO_ID)
      for (int j = 0; j < LISTS; ++j)
        if (j == from) heads[j] += 1u;
    if (lane == 0) {
      best_values[k] = key_value(best.key);
      best_ids[k] = best.id;
    }
  }
}
