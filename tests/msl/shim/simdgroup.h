// SPDX-License-Identifier: Apache-2.0
// Barriers and what the 32 lanes of a simdgroup do together. Every function takes the
// line it is called in as a last argument, by which lanes recognise each other.
#pragma once
#include "../runtime/emulator.h"
#include "mathematics.h"

#define EMU_SITE int emu_site = __builtin_LINE()

namespace metal {

enum class mem_flags {
  mem_none = 0,
  mem_device = 1,
  mem_threadgroup = 2,
  mem_device_and_threadgroup = 3,
  mem_texture = 4,
  mem_threadgroup_imageblock = 8,
};
inline mem_flags operator|(mem_flags a, mem_flags b) {
  return static_cast<mem_flags>(static_cast<int>(a) | static_cast<int>(b));
}
inline void threadgroup_barrier(mem_flags flags, EMU_SITE) {
  emu_threadgroup_barrier(static_cast<int>(flags), emu_site);
}
inline void simdgroup_barrier(mem_flags flags, EMU_SITE) {
  emu_simdgroup_barrier(static_cast<int>(flags), emu_site);
}

struct simd_vote {
  uint64_t bits;
  explicit simd_vote(uint64_t votes = 0) : bits(votes) {}
  explicit operator uint64_t() const { return bits; }
  bool all() const { return (bits & emu_lanes()) == emu_lanes(); }
  bool any() const { return bits != 0; }
};

// The values of all lanes, after the rendezvous.
template <typename T>
struct emu_values {
  const uint8_t* slots;
  uint32_t present = emu_lanes();
  emu_values(const char* operation, const T& mine, int site) {
    static_assert(sizeof(T) <= EMU_SITE_LIMIT, "one lane brings at most 64 bytes");
    slots = static_cast<const uint8_t*>(emu_exchange(operation, site, &mine, sizeof(T)));
  }
  bool has(uint32_t lane) const { return lane < 32 && ((present >> lane) & 1u) != 0; }
  T operator[](uint32_t lane) const {
    T value;
    emu_peek(slots + lane * EMU_SITE_LIMIT, &value, sizeof(T));
    return value;
  }
};

// The device does not promise an order, so tests run under three of them.
template <typename T, typename F>
inline T emu_fold(const emu_values<T>& values, uint32_t first, uint32_t count, F f) {
  T v[32];
  uint32_t n = 0;
  const int order = emu_reduction_order();
  for (uint32_t i = first; i < first + count; ++i)
    if (values.has(i)) v[n++] = values[i];
  if (order == 0 && (n & (n - 1)) == 0) {
    for (uint32_t step = 1; step < n; step *= 2)
      for (uint32_t i = 0; i + step < n; i += 2 * step) v[i] = f(v[i], v[i + step]);
    return v[0];
  }
  if (order == 2) {
    T out = v[n - 1];
    for (uint32_t i = n - 1; i-- > 0;) out = f(out, v[i]);
    return out;
  }
  T out = v[0];
  for (uint32_t i = 1; i < n; ++i) out = f(out, v[i]);
  return out;
}

#define EMU_REDUCTION(name, expression)                                           \
  template <typename T>                                                           \
  inline T simd_##name(T value, EMU_SITE) {                                       \
    return emu_fold(emu_values<T>("simd_" #name, value, emu_site), 0, 32,         \
                    [](T a, T b) { return T(expression); });                      \
  }                                                                               \
  template <typename T>                                                           \
  inline T quad_##name(T value, EMU_SITE) {                                       \
    return emu_fold(emu_values<T>("quad_" #name, value, emu_site),                \
                    emu_lane() & ~3u, 4, [](T a, T b) { return T(expression); }); \
  }
EMU_REDUCTION(sum, a + b)
EMU_REDUCTION(product, a* b)
EMU_REDUCTION(max, max(a, b))
EMU_REDUCTION(min, min(a, b))
EMU_REDUCTION(and, a& b)
EMU_REDUCTION(or, a | b)
EMU_REDUCTION(xor, a ^ b)
#undef EMU_REDUCTION

#define EMU_PREFIX(name, expression, neutral)                             \
  template <typename T>                                                   \
  inline T simd_prefix_inclusive_##name(T value, EMU_SITE) {              \
    emu_values<T> values("simd_prefix_inclusive_" #name, value, emu_site); \
    T a = values[0];                                                      \
    for (uint32_t i = 1; i <= emu_lane(); ++i) {                          \
      const T b = values[i];                                              \
      a = T(expression);                                                  \
    }                                                                     \
    return a;                                                             \
  }                                                                       \
  template <typename T>                                                   \
  inline T simd_prefix_exclusive_##name(T value, EMU_SITE) {              \
    emu_values<T> values("simd_prefix_exclusive_" #name, value, emu_site); \
    T a = T(neutral);                                                     \
    for (uint32_t i = 0; i < emu_lane(); ++i) {                           \
      const T b = values[i];                                              \
      a = T(expression);                                                  \
    }                                                                     \
    return a;                                                             \
  }
EMU_PREFIX(sum, a + b, 0)
EMU_PREFIX(product, a* b, 1)
#undef EMU_PREFIX

template <typename T>
inline T emu_take(const char* operation, T value, uint32_t lane, int site) {
  emu_values<T> values(operation, value, site);
  if (!values.has(lane)) {
    emu_invalid_lane(operation, site, lane);
    return value;
  }
  return values[lane];
}

template <typename T>
inline T simd_shuffle(T value, ushort lane, EMU_SITE) {
  return emu_take("simd_shuffle", value, lane, emu_site);
}
template <typename T>
inline T simd_broadcast(T value, ushort lane, EMU_SITE) {
  return emu_take("simd_broadcast", value, lane, emu_site);
}
template <typename T>
inline T simd_broadcast_first(T value, EMU_SITE) {
  return emu_take("simd_broadcast_first", value, 0, emu_site);
}
template <typename T>
inline T simd_shuffle_xor(T value, ushort mask, EMU_SITE) {
  return emu_take("simd_shuffle_xor", value, emu_lane() ^ mask, emu_site);
}
// At the ends the value stays what it was.
template <typename T>
inline T simd_shuffle_up(T value, ushort delta, EMU_SITE) {
  const uint32_t me = emu_lane();
  return emu_take("simd_shuffle_up", value, me < delta ? me : me - delta, emu_site);
}
template <typename T>
inline T simd_shuffle_down(T value, ushort delta, EMU_SITE) {
  const uint32_t me = emu_lane(), from = me + delta;
  return emu_take("simd_shuffle_down", value, from > 31 ? me : from, emu_site);
}
template <typename T>
inline T simd_shuffle_rotate_up(T value, ushort delta, EMU_SITE) {
  return emu_take("simd_shuffle_rotate_up", value, (emu_lane() - delta) & 31u, emu_site);
}
template <typename T>
inline T simd_shuffle_rotate_down(T value, ushort delta, EMU_SITE) {
  return emu_take("simd_shuffle_rotate_down", value, (emu_lane() + delta) & 31u,
                  emu_site);
}
template <typename T>
inline T simd_shuffle_and_fill_up(T value, T fill, ushort delta, EMU_SITE) {
  emu_values<T> values("simd_shuffle_and_fill_up", value, emu_site);
  emu_values<T> fills("simd_shuffle_and_fill_up", fill, emu_site);
  const uint32_t me = emu_lane();
  return me >= delta ? values[me - delta] : fills[32 + me - delta];
}
template <typename T>
inline T simd_shuffle_and_fill_down(T value, T fill, ushort delta, EMU_SITE) {
  emu_values<T> values("simd_shuffle_and_fill_down", value, emu_site);
  emu_values<T> fills("simd_shuffle_and_fill_down", fill, emu_site);
  const uint32_t from = emu_lane() + delta;
  return from < 32 ? values[from] : fills[from - 32];
}
template <typename T>
inline T quad_shuffle(T value, ushort lane, EMU_SITE) {
  return emu_take("quad_shuffle", value, (emu_lane() & ~3u) + lane, emu_site);
}
template <typename T>
inline T quad_shuffle_xor(T value, ushort mask, EMU_SITE) {
  return emu_take("quad_shuffle_xor", value, emu_lane() ^ (mask & 3u), emu_site);
}
template <typename T>
inline T quad_broadcast(T value, ushort lane, EMU_SITE) {
  return emu_take("quad_broadcast", value, (emu_lane() & ~3u) + lane, emu_site);
}

inline simd_vote simd_ballot(bool vote, EMU_SITE) {
  emu_values<bool> votes("simd_ballot", vote, emu_site);
  uint64_t bits = 0;
  for (uint32_t i = 0; i < 32; ++i)
    if (votes.has(i) && votes[i]) bits |= uint64_t(1) << i;
  return simd_vote(bits);
}
inline bool simd_all(bool vote, EMU_SITE) { return simd_ballot(vote, emu_site).all(); }
inline bool simd_any(bool vote, EMU_SITE) { return simd_ballot(vote, emu_site).any(); }
inline bool simd_is_first() { return emu_lane() == 0; }
inline simd_vote simd_active_threads_mask() { return simd_vote(emu_lanes()); }

}  // namespace metal
