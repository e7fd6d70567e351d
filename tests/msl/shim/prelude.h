// SPDX-License-Identifier: Apache-2.0
// What stands before every kernel that MLX compiles, as far as kernels may use it: the
// whole of metal_stdlib, and the names of MLX's own prelude, so that a helper with the
// name of one of them collides here too.
#pragma once
#include "atomics.h"
#include "simdgroup_matrix.h"

#define INFINITY __builtin_inff()
#define NAN __builtin_nanf("")
#define HUGE_VALF __builtin_inff()
#define FLT_MAX __FLT_MAX__
#define FLT_MIN __FLT_MIN__
#define FLT_EPSILON __FLT_EPSILON__
#define INT_MAX 2147483647
#define INT_MIN (-2147483647 - 1)
#define UINT_MAX 4294967295u
#define M_PI_F 3.14159265358979323846f
#define M_LOG2E_F 1.44269504088896340736f
#define M_LN2_F 0.69314718055994530942f
#define M_E_F 2.71828182845904523536f

// Address spaces and function kinds mean nothing to a C++ compiler.
#define device
#define constant
#define thread
#define threadgroup
#define kernel
#define coherent(scope)
#define METAL_FUNC inline __attribute__((always_inline))

// A threadgroup declaration of the body after rewriting (see rewriting.py).
#define EMU_THREADGROUP(name, ...)                                     \
  using emu_type_of_##name = __VA_ARGS__;                              \
  emu_type_of_##name& name = *static_cast<emu_type_of_##name*>(        \
      emu_threadgroup_storage(#name, __LINE__, sizeof(emu_type_of_##name)));

using namespace metal;

template <typename U>
struct Limits {
  static const U max, min, finite_max, finite_min;
};
template <typename U>
const U Limits<U>::max = is_floating_point_v<U> ? U(INFINITY) : numeric_limits<U>::max();
template <typename U>
const U Limits<U>::min = is_floating_point_v<U> ? U(-INFINITY) : numeric_limits<U>::min();
template <typename U>
const U Limits<U>::finite_max = numeric_limits<U>::max();
template <typename U>
const U Limits<U>::finite_min = numeric_limits<U>::lowest();

template <typename T>
inline int64_t elem_to_loc(T elem, const int* shape, const int64_t* strides, int ndim) {
  int64_t at = 0;
  for (int i = ndim - 1; i >= 0 && elem > 0; --i) {
    at += int64_t(elem % shape[i]) * strides[i];
    elem = T(elem / shape[i]);
  }
  return at;
}
template <typename T, typename U>
inline T ceildiv(T n, U m) { return (n + m - 1) / m; }
inline float log1p(float x) { return __builtin_log1pf(x); }
template <typename R>
inline narrow<R> log1p(narrow<R> x) { return narrow<R>(log1p(float(x))); }
