// SPDX-License-Identifier: Apache-2.0
// Metal's scalar types. half and bfloat are 16 bits that become float for every
// operation and are rounded to nearest even after it; float has more than twice their
// precision plus two bits, so rounding twice equals rounding once.
#pragma once
#include <stddef.h>
#include <stdint.h>

typedef unsigned char uchar;
typedef unsigned short ushort;
typedef unsigned int uint;
typedef unsigned long ulong;

namespace metal {

template <bool C, typename T = void>
struct enable_if {};
template <typename T>
struct enable_if<true, T> {
  typedef T type;
};
template <bool C, typename T = void>
using enable_if_t = typename enable_if<C, T>::type;

template <typename A, typename B>
struct is_same {
  static constexpr bool value = false;
};
template <typename A>
struct is_same<A, A> {
  static constexpr bool value = true;
};
template <typename A, typename B>
constexpr bool is_same_v = is_same<A, B>::value;

template <bool C, typename A, typename B>
struct conditional {
  typedef A type;
};
template <typename A, typename B>
struct conditional<false, A, B> {
  typedef B type;
};
template <bool C, typename A, typename B>
using conditional_t = typename conditional<C, A, B>::type;

template <typename T>
struct identity {
  typedef T type;
};
template <typename T>
using identity_t = typename identity<T>::type;

template <typename T>
constexpr bool is_built_in_float = is_same_v<T, float> || is_same_v<T, double>;
template <typename T>
constexpr bool is_integral_v =
    is_same_v<T, bool> || is_same_v<T, char> || is_same_v<T, signed char> ||
    is_same_v<T, uchar> || is_same_v<T, short> || is_same_v<T, ushort> ||
    is_same_v<T, int> || is_same_v<T, uint> || is_same_v<T, long> ||
    is_same_v<T, ulong> || is_same_v<T, long long> || is_same_v<T, unsigned long long>;

template <typename To, typename From>
inline To as_type(const From& from) {
  static_assert(sizeof(To) == sizeof(From), "as_type keeps the size");
  To to;
  __builtin_memcpy(&to, &from, sizeof(To));
  return to;
}

struct half_rounding {
  static uint16_t bits(float value) {
    uint32_t u = as_type<uint32_t>(value);
    const uint32_t sign = (u >> 16) & 0x8000u;
    u &= 0x7FFFFFFFu;
    if (u > 0x7F800000u) return sign | 0x7E00u;
    if (u >= 0x477FF000u) return sign | 0x7C00u;  // 65520 and more round to infinity
    if (u < 0x38800000u) {
      // Adding 0.5 moves the last bit of a half subnormal to the last bit of the float.
      const float moved = as_type<float>(u) + 0.5f;
      return sign | (as_type<uint32_t>(moved) - 0x3F000000u);
    }
    u += 0x0FFFu + ((u >> 13) & 1u);
    return sign | ((u - 0x38000000u) >> 13);
  }
  static float value(uint16_t bits) {
    const uint32_t sign = (bits & 0x8000u) << 16;
    const uint32_t rest = bits & 0x7FFFu;
    if (rest >= 0x7C00u)
      return as_type<float>(sign | 0x7F800000u | ((rest & 0x3FFu) << 13));
    if (rest < 0x0400u) {
      const float small = static_cast<float>(rest) * 0x1p-24f;
      return sign ? -small : small;
    }
    return as_type<float>(sign | ((rest << 13) + 0x38000000u));
  }
};

struct bfloat_rounding {
  static uint16_t bits(float value) {
    uint32_t u = as_type<uint32_t>(value);
    if ((u & 0x7FFFFFFFu) > 0x7F800000u) return (u >> 16) | 0x40u;
    u += 0x7FFFu + ((u >> 16) & 1u);
    return u >> 16;
  }
  static float value(uint16_t bits) {
    return as_type<float>(static_cast<uint32_t>(bits) << 16);
  }
};

template <typename Rounding>
struct narrow {
  uint16_t bits;

  narrow() = default;
  template <typename T,
            typename = enable_if_t<is_built_in_float<T> || is_integral_v<T>>>
  narrow(T value) : bits(Rounding::bits(static_cast<float>(value))) {}
  template <typename R, typename = enable_if_t<!is_same_v<R, Rounding>>, int = 0>
  explicit narrow(narrow<R> other)
      : bits(Rounding::bits(static_cast<float>(other))) {}
  operator float() const { return Rounding::value(bits); }

  template <typename T>
  narrow& operator+=(T b) { return *this = narrow(float(*this) + float(b)); }
  template <typename T>
  narrow& operator-=(T b) { return *this = narrow(float(*this) - float(b)); }
  template <typename T>
  narrow& operator*=(T b) { return *this = narrow(float(*this) * float(b)); }
  template <typename T>
  narrow& operator/=(T b) { return *this = narrow(float(*this) / float(b)); }
  narrow operator-() const {
    narrow n;
    n.bits = bits ^ 0x8000u;
    return n;
  }
  narrow operator+() const { return *this; }
  narrow& operator++() { return *this += 1; }
  narrow& operator--() { return *this -= 1; }
};

// Two narrow numbers, or one and an integer, give a narrow number; with a float the
// result is a float. half with bfloat has no common type and does not compile.
#define EMU_NARROW_OPERATOR(op)                                                        \
  template <typename R>                                                                \
  inline narrow<R> operator op(narrow<R> a, narrow<R> b) {                             \
    return narrow<R>(float(a) op float(b));                                            \
  }                                                                                    \
  template <typename R, typename T, typename = enable_if_t<is_integral_v<T>>>          \
  inline narrow<R> operator op(narrow<R> a, T b) {                                     \
    return narrow<R>(float(a) op float(narrow<R>(b)));                                 \
  }                                                                                    \
  template <typename R, typename T, typename = enable_if_t<is_integral_v<T>>>          \
  inline narrow<R> operator op(T a, narrow<R> b) {                                     \
    return narrow<R>(float(narrow<R>(a)) op float(b));                                 \
  }                                                                                    \
  template <typename R, typename T, typename = enable_if_t<is_built_in_float<T>>,      \
            int = 0>                                                                   \
  inline float operator op(narrow<R> a, T b) {                                         \
    return float(a) op float(b);                                                       \
  }                                                                                    \
  template <typename R, typename T, typename = enable_if_t<is_built_in_float<T>>,      \
            int = 0>                                                                   \
  inline float operator op(T a, narrow<R> b) {                                         \
    return float(a) op float(b);                                                       \
  }                                                                                    \
  inline void operator op(narrow<half_rounding>, narrow<bfloat_rounding>) = delete;    \
  inline void operator op(narrow<bfloat_rounding>, narrow<half_rounding>) = delete;
EMU_NARROW_OPERATOR(+)
EMU_NARROW_OPERATOR(-)
EMU_NARROW_OPERATOR(*)
EMU_NARROW_OPERATOR(/)
#undef EMU_NARROW_OPERATOR

}  // namespace metal

typedef metal::narrow<metal::half_rounding> half;
typedef metal::narrow<metal::bfloat_rounding> bfloat;
typedef half float16_t;
typedef bfloat bfloat16_t;

namespace metal {

template <typename T>
constexpr bool is_narrow = is_same_v<T, half> || is_same_v<T, bfloat>;
template <typename T>
constexpr bool is_floating_point_v = is_same_v<T, float> || is_narrow<T>;
template <typename T>
constexpr bool is_arithmetic_v =
    is_integral_v<T> || is_floating_point_v<T> || is_same_v<T, double>;

template <typename T>
struct is_floating_point {
  static constexpr bool value = is_floating_point_v<T>;
};
template <typename T>
struct is_integral {
  static constexpr bool value = is_integral_v<T>;
};
template <typename T>
constexpr bool is_signed_v = T(-1) < T(0);

template <typename T>
struct numeric_limits {
  static constexpr T max() {
    return is_signed_v<T> ? T((1ull << (8 * sizeof(T) - 1)) - 1) : T(~T(0));
  }
  static constexpr T min() { return is_signed_v<T> ? T(-max() - 1) : T(0); }
  static constexpr T lowest() { return min(); }
};
template <>
struct numeric_limits<bool> {
  static constexpr bool max() { return true; }
  static constexpr bool min() { return false; }
  static constexpr bool lowest() { return false; }
};
template <>
struct numeric_limits<float> {
  static constexpr float max() { return __FLT_MAX__; }
  static constexpr float min() { return __FLT_MIN__; }
  static constexpr float lowest() { return -__FLT_MAX__; }
  static constexpr float epsilon() { return __FLT_EPSILON__; }
  static constexpr float infinity() { return __builtin_inff(); }
  static constexpr float quiet_NaN() { return __builtin_nanf(""); }
};
#define EMU_NARROW_LIMITS(T, MAX, MIN, EPSILON)              \
  template <>                                                \
  struct numeric_limits<T> {                                 \
    static T max() { return T(MAX); }                        \
    static T min() { return T(MIN); }                        \
    static T lowest() { return T(-MAX); }                    \
    static T epsilon() { return T(EPSILON); }                \
    static T infinity() { return T(__builtin_inff()); }      \
    static T quiet_NaN() { return T(__builtin_nanf("")); }   \
  };
EMU_NARROW_LIMITS(half, 65504.0f, 0x1p-14f, 0x1p-10f)
EMU_NARROW_LIMITS(bfloat, 0x1.FEp127f, 0x1p-126f, 0x1p-7f)
#undef EMU_NARROW_LIMITS

}  // namespace metal
