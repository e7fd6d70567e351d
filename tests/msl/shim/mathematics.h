// SPDX-License-Identifier: Apache-2.0
// Metal's mathematics on scalars and, element by element, on vectors. `precise` and
// `fast` are the same here: a test must not rest on the last bit of either.
#pragma once
#include "vectors.h"

namespace metal {

#define EMU_UNARY(name, expression)                                  \
  inline float name(float x) { return expression; }                  \
  template <typename R>                                              \
  inline narrow<R> name(narrow<R> h) {                               \
    return narrow<R>(name(static_cast<float>(h)));                   \
  }                                                                  \
  template <typename T, int N>                                       \
  inline vec<T, N> name(vec<T, N> v) {                               \
    for (int i = 0; i < N; ++i) v.data[i] = name(v.data[i]);         \
    return v;                                                        \
  }                                                                  \
  template <typename T, typename = enable_if_t<is_integral_v<T>>>    \
  inline float name(T n) {                                           \
    return name(static_cast<float>(n));                              \
  }
#define EMU_UNARY_FUNCTIONS                                          \
  EMU_UNARY(exp, __builtin_expf(x))                                  \
  EMU_UNARY(exp2, __builtin_exp2f(x))                                \
  EMU_UNARY(exp10, __builtin_powf(10.0f, x))                         \
  EMU_UNARY(log, __builtin_logf(x))                                  \
  EMU_UNARY(log2, __builtin_log2f(x))                                \
  EMU_UNARY(log10, __builtin_log10f(x))                              \
  EMU_UNARY(sqrt, __builtin_sqrtf(x))                                \
  EMU_UNARY(rsqrt, 1.0f / __builtin_sqrtf(x))                        \
  EMU_UNARY(sin, __builtin_sinf(x))                                  \
  EMU_UNARY(cos, __builtin_cosf(x))                                  \
  EMU_UNARY(tan, __builtin_tanf(x))                                  \
  EMU_UNARY(asin, __builtin_asinf(x))                                \
  EMU_UNARY(acos, __builtin_acosf(x))                                \
  EMU_UNARY(atan, __builtin_atanf(x))                                \
  EMU_UNARY(sinh, __builtin_sinhf(x))                                \
  EMU_UNARY(cosh, __builtin_coshf(x))                                \
  EMU_UNARY(tanh, __builtin_tanhf(x))

EMU_UNARY_FUNCTIONS
EMU_UNARY(floor, __builtin_floorf(x))
EMU_UNARY(ceil, __builtin_ceilf(x))
EMU_UNARY(trunc, __builtin_truncf(x))
EMU_UNARY(rint, __builtin_rintf(x))
EMU_UNARY(round, __builtin_roundf(x))
EMU_UNARY(fract, x - __builtin_floorf(x))
EMU_UNARY(fabs, __builtin_fabsf(x))
EMU_UNARY(sign, x > 0.0f ? 1.0f : (x < 0.0f ? -1.0f : x == x ? x : 0.0f))
EMU_UNARY(saturate, x > 1.0f ? 1.0f : (x > 0.0f ? x : 0.0f))

namespace precise {
EMU_UNARY_FUNCTIONS
}
namespace fast {
EMU_UNARY_FUNCTIONS
}
#undef EMU_UNARY
#undef EMU_UNARY_FUNCTIONS

#define EMU_BINARY(name, expression)                                         \
  inline float name(float x, float y) { return expression; }                 \
  template <typename R>                                                      \
  inline narrow<R> name(narrow<R> a, narrow<R> b) {                          \
    return narrow<R>(name(static_cast<float>(a), static_cast<float>(b)));    \
  }                                                                          \
  template <typename T, int N>                                               \
  inline vec<T, N> name(vec<T, N> a, identity_t<vec<T, N>> b) {              \
    for (int i = 0; i < N; ++i) a.data[i] = name(a.data[i], b.data[i]);      \
    return a;                                                                \
  }
EMU_BINARY(pow, __builtin_powf(x, y))
EMU_BINARY(powr, __builtin_powf(x, y))
EMU_BINARY(fmod, __builtin_fmodf(x, y))
EMU_BINARY(atan2, __builtin_atan2f(x, y))
EMU_BINARY(copysign, __builtin_copysignf(x, y))
EMU_BINARY(fmax, __builtin_fmaxf(x, y))
EMU_BINARY(fmin, __builtin_fminf(x, y))
EMU_BINARY(step, y < x ? 0.0f : 1.0f)
#undef EMU_BINARY

// max and min leave out a NaN, as fmax and fmin do; both operands have one type.
#define EMU_EXTREME(name, compare, floating)                                   \
  template <typename T, typename = enable_if_t<is_arithmetic_v<T>>>            \
  inline T name(T a, T b) {                                                    \
    if constexpr (is_floating_point_v<T>) return floating(a, b);               \
    else return b compare a ? b : a;                                           \
  }                                                                            \
  template <typename T, int N>                                                 \
  inline vec<T, N> name(vec<T, N> a, identity_t<vec<T, N>> b) {                \
    for (int i = 0; i < N; ++i) a.data[i] = name(a.data[i], b.data[i]);        \
    return a;                                                                  \
  }                                                                            \
  template <typename T>                                                        \
  inline T name##3(T a, T b, T c) {                                            \
    return name(name(a, b), c);                                                \
  }
EMU_EXTREME(max, >, fmax)
EMU_EXTREME(min, <, fmin)
#undef EMU_EXTREME
inline float max(float a, int b) { return fmax(a, static_cast<float>(b)); }
inline float min(float a, int b) { return fmin(a, static_cast<float>(b)); }

template <typename T>
inline T clamp(T x, identity_t<T> low, identity_t<T> high) {
  return min(max(x, low), high);
}

inline float fma(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
template <typename R>
inline narrow<R> fma(narrow<R> a, narrow<R> b, narrow<R> c) {
  // A product of two narrow numbers is exact in double, and so is the rounding after.
  return narrow<R>(static_cast<float>(static_cast<double>(float(a)) * float(b) +
                                      static_cast<double>(float(c))));
}
template <typename T, int N>
inline vec<T, N> fma(vec<T, N> a, vec<T, N> b, vec<T, N> c) {
  for (int i = 0; i < N; ++i) a.data[i] = fma(a.data[i], b.data[i], c.data[i]);
  return a;
}
template <typename T>
inline T mad(T a, T b, T c) { return a * b + c; }
template <typename T>
inline T mix(T a, T b, T t) { return a + (b - a) * t; }

template <typename T, typename = enable_if_t<is_arithmetic_v<T>>>
inline T abs(T x) {
  if constexpr (is_floating_point_v<T>) return fabs(x);
  else return x < T(0) ? T(-x) : x;
}
template <typename T, int N>
inline vec<T, N> abs(vec<T, N> v) {
  for (int i = 0; i < N; ++i) v.data[i] = abs(v.data[i]);
  return v;
}

template <typename T>
inline T select(T a, T b, bool second) { return second ? b : a; }
template <typename T, int N>
inline vec<T, N> select(vec<T, N> a, vec<T, N> b, vec<bool, N> second) {
  for (int i = 0; i < N; ++i) a.data[i] = second.data[i] ? b.data[i] : a.data[i];
  return a;
}

inline bool isnan(float x) { return x != x; }
inline bool isinf(float x) { return __builtin_isinf(x) != 0; }
inline bool isfinite(float x) { return __builtin_isfinite(x) != 0; }
inline bool signbit(float x) { return __builtin_signbit(x) != 0; }
inline float ldexp(float x, int n) { return __builtin_ldexpf(x, n); }

template <typename T>
inline T popcount(T x) {
  T n = 0;
  for (; x != 0; x = T(x & T(x - 1))) ++n;
  return n;
}
template <typename T>
inline T ctz(T x) {
  T n = 0;
  while (n < T(8 * sizeof(T)) && ((x >> n) & 1) == 0) ++n;
  return n;
}
template <typename T>
inline T clz(T x) {
  T n = 0;
  while (n < T(8 * sizeof(T)) && ((x >> (8 * sizeof(T) - 1 - n)) & 1) == 0) ++n;
  return n;
}
template <typename T>
inline T reverse_bits(T x) {
  T out = 0;
  for (size_t i = 0; i < 8 * sizeof(T); ++i)
    out = T(out | (((x >> i) & 1) << (8 * sizeof(T) - 1 - i)));
  return out;
}
template <typename T>
inline T extract_bits(T x, uint offset, uint bits) {
  return bits == 8 * sizeof(T) ? x : T((x >> offset) & T((T(1) << bits) - 1));
}
inline uint mulhi(uint a, uint b) {
  return static_cast<uint>((static_cast<uint64_t>(a) * b) >> 32);
}

}  // namespace metal
