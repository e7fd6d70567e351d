// SPDX-License-Identifier: Apache-2.0
// Relaxed atomics. Lanes run one at a time here, so a plain access is indivisible; the
// runtime checks it and may let other lanes come first.
#pragma once
#include "simdgroup.h"

namespace metal {

enum memory_order { memory_order_relaxed, memory_order_seq_cst };
enum class thread_scope { thread, simdgroup, threadgroup, device };
constexpr thread_scope thread_scope_thread = thread_scope::thread;
constexpr thread_scope thread_scope_simdgroup = thread_scope::simdgroup;
constexpr thread_scope thread_scope_threadgroup = thread_scope::threadgroup;
constexpr thread_scope thread_scope_device = thread_scope::device;

// A fence alone orders nothing that the race check would accept: use a barrier.
inline void atomic_thread_fence(mem_flags, memory_order = memory_order_seq_cst,
                                thread_scope = thread_scope_device) {}

template <typename T>
struct atomic {
  T emu_value;
};
typedef atomic<int> atomic_int;
typedef atomic<uint> atomic_uint;
typedef atomic<float> atomic_float;
typedef atomic<bool> atomic_bool;

// One indivisible change. `f` gives the new value from the old one.
template <typename T, typename F>
inline T emu_change(const volatile atomic<T>* object, F f) {
  static_assert(is_same_v<T, int> || is_same_v<T, uint> || is_same_v<T, float> ||
                    is_same_v<T, ulong> || is_same_v<T, bool>,
                "Metal has no atomic of this type");
  void* address = const_cast<atomic<T>*>(object);
  emu_atomic(address, sizeof(T), 2);
  T old;
  emu_peek(address, &old, sizeof(T));
  const T now = f(old);
  emu_poke(address, &now, sizeof(T));
  return old;
}

template <typename T>
inline T atomic_load_explicit(const volatile atomic<T>* object, memory_order) {
  void* address = const_cast<atomic<T>*>(object);
  emu_atomic(address, sizeof(T), 0);
  T value;
  emu_peek(address, &value, sizeof(T));
  return value;
}
template <typename T>
inline void atomic_store_explicit(volatile atomic<T>* object, identity_t<T> value,
                                  memory_order) {
  void* address = const_cast<atomic<T>*>(object);
  emu_atomic(address, sizeof(T), 1);
  emu_poke(address, &value, sizeof(T));
}
#define EMU_ATOMIC(name, expression)                                              \
  template <typename T>                                                           \
  inline T atomic_##name##_explicit(volatile atomic<T>* object, identity_t<T> b,  \
                                    memory_order) {                               \
    return emu_change(object, [b](T a) { return T(expression); });                \
  }
EMU_ATOMIC(exchange, ((void)a, b))
EMU_ATOMIC(fetch_add, a + b)
EMU_ATOMIC(fetch_sub, a - b)
EMU_ATOMIC(fetch_max, a < b ? b : a)
EMU_ATOMIC(fetch_min, b < a ? b : a)
EMU_ATOMIC(fetch_and, a& b)
EMU_ATOMIC(fetch_or, a | b)
EMU_ATOMIC(fetch_xor, a ^ b)
#undef EMU_ATOMIC

template <typename T>
inline bool atomic_compare_exchange_weak_explicit(volatile atomic<T>* object,
                                                  T* expected, identity_t<T> desired,
                                                  memory_order, memory_order) {
  const T wanted = *expected;
  const T old = emu_change(
      object, [wanted, desired](T now) { return now == wanted ? desired : now; });
  *expected = old;
  return old == wanted;
}

}  // namespace metal
