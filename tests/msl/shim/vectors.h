// SPDX-License-Identifier: Apache-2.0
// Metal's vectors of two, three and four: size and alignment as on the device (a
// three-vector takes four places), constructors from any mix of scalars and vectors,
// element-wise operators, and the swizzles listed below.
#pragma once
#include "scalars.h"

namespace metal {

template <typename T, int N>
struct vec;

template <typename A>
struct lanes_of {
  static constexpr int value = 1;
};
template <typename T, int N>
struct lanes_of<vec<T, N>> {
  static constexpr int value = N;
};

template <typename... A>
struct total_lanes {
  static constexpr int value = 0;
};
template <typename A, typename... Rest>
struct total_lanes<A, Rest...> {
  static constexpr int value = lanes_of<A>::value + total_lanes<Rest...>::value;
};

// A view of some places of a vector, in the given order.
template <typename T, int P, int... I>
struct swizzle {
  T data[P];
  static constexpr int count = sizeof...(I);
  operator vec<T, count>() const {
    vec<T, count> out;
    int i = 0;
    ((out.data[i++] = data[I]), ...);
    return out;
  }
  swizzle& operator=(vec<T, count> from) {
    int i = 0;
    ((data[I] = from.data[i++]), ...);
    return *this;
  }
  swizzle& operator=(const swizzle& other) {
    return *this = static_cast<vec<T, count>>(other);
  }
  swizzle() = default;
  swizzle(const swizzle&) = default;
};
template <typename T, int P, int... I>
struct lanes_of<swizzle<T, P, I...>> {
  static constexpr int value = sizeof...(I);
};

template <typename T, int N>
struct vec_data;

// Assigning a swizzle is not copying its bytes, so a vector says that its own copy is.
#define EMU_VECTOR_COPY                             \
  vec_data() = default;                             \
  vec_data(const vec_data& other) = default;        \
  vec_data& operator=(const vec_data& other) {      \
    __builtin_memcpy(this, &other, sizeof(*this));  \
    return *this;                                   \
  }
#define EMU_SWIZZLES_2(P)                                               \
  swizzle<T, P, 0, 0> xx; swizzle<T, P, 1, 1> yy; swizzle<T, P, 0, 1> xy; \
  swizzle<T, P, 1, 0> yx;
#define EMU_SWIZZLES_3(P)                                                \
  EMU_SWIZZLES_2(P)                                                      \
  swizzle<T, P, 2, 2> zz; swizzle<T, P, 0, 2> xz; swizzle<T, P, 2, 0> zx; \
  swizzle<T, P, 1, 2> yz; swizzle<T, P, 2, 1> zy; swizzle<T, P, 0, 1, 2> xyz; \
  swizzle<T, P, 2, 1, 0> zyx;

template <typename T>
struct alignas(2 * sizeof(T)) vec_data<T, 2> {
  EMU_VECTOR_COPY
  union {
    T data[2];
    struct { T x, y; };
    struct { T r, g; };
    EMU_SWIZZLES_2(2)
  };
};
template <typename T>
struct alignas(4 * sizeof(T)) vec_data<T, 3> {
  EMU_VECTOR_COPY
  union {
    T data[4];
    struct { T x, y, z; };
    struct { T r, g, b; };
    EMU_SWIZZLES_3(4)
  };
};
template <typename T>
struct alignas(4 * sizeof(T)) vec_data<T, 4> {
  EMU_VECTOR_COPY
  union {
    T data[4];
    struct { T x, y, z, w; };
    struct { T r, g, b, a; };
    EMU_SWIZZLES_3(4)
    swizzle<T, 4, 2, 3> zw;
    swizzle<T, 4, 3, 2> wz;
    swizzle<T, 4, 1, 3> yw;
    swizzle<T, 4, 0, 3> xw;
    swizzle<T, 4, 3, 3> ww;
    swizzle<T, 4, 1, 2, 3> yzw;
    swizzle<T, 4, 3, 2, 1, 0> wzyx;
    swizzle<T, 4, 0, 1, 2, 3> xyzw;
  };
};

template <typename T, int N>
struct vec : vec_data<T, N> {
  using vec_data<T, N>::data;

  vec() = default;
  vec(T value) {
    for (int i = 0; i < N; ++i) data[i] = value;
  }
  template <typename S, typename = enable_if_t<is_arithmetic_v<S> && !is_same_v<S, T>>,
            int = 0>
  vec(S value) : vec(static_cast<T>(value)) {}
  template <typename U, typename = enable_if_t<!is_same_v<U, T>>>
  explicit vec(vec<U, N> other) {
    for (int i = 0; i < N; ++i) data[i] = static_cast<T>(other.data[i]);
  }
  template <typename A, typename B, typename... Rest>
  vec(A a, B b, Rest... rest) {
    static_assert(total_lanes<A, B, Rest...>::value == N,
                  "the parts of a vector fill it exactly");
    int at = 0;
    put(at, a);
    put(at, b);
    (put(at, rest), ...);
  }
  T& operator[](int i) { return data[i]; }
  const T& operator[](int i) const { return data[i]; }

 private:
  template <typename A>
  void put(int& at, A a) {
    if constexpr (lanes_of<A>::value == 1) {
      data[at++] = static_cast<T>(a);
    } else {
      put_all(at, a);
    }
  }
  template <typename U, int M>
  void put_all(int& at, vec<U, M> a) {
    for (int i = 0; i < M; ++i) data[at++] = static_cast<T>(a.data[i]);
  }
  template <typename U, int P, int... I>
  void put_all(int& at, swizzle<U, P, I...> a) {
    put_all(at, static_cast<vec<U, sizeof...(I)>>(a));
  }
};

template <typename A>
constexpr bool is_swizzle = false;
template <typename T, int P, int... I>
constexpr bool is_swizzle<swizzle<T, P, I...>> = true;

template <typename A>
inline A as_vector(A a) { return a; }
template <typename T, int P, int... I>
inline vec<T, sizeof...(I)> as_vector(swizzle<T, P, I...> a) { return a; }

#define EMU_SWIZZLE_OPERATOR(op)                                              \
  template <typename A, typename B,                                           \
            typename = enable_if_t<is_swizzle<A> || is_swizzle<B>>>           \
  inline auto operator op(A a, B b) {                                         \
    return as_vector(a) op as_vector(b);                                      \
  }

#define EMU_VECTOR_OPERATOR(op)                                               \
  EMU_SWIZZLE_OPERATOR(op)                                                    \
  template <typename T, int N>                                                \
  inline vec<T, N> operator op(vec<T, N> a, vec<T, N> b) {                    \
    vec<T, N> out;                                                            \
    for (int i = 0; i < N; ++i)                                               \
      out.data[i] = static_cast<T>(a.data[i] op b.data[i]);                   \
    return out;                                                               \
  }                                                                           \
  template <typename T, int N>                                                \
  inline vec<T, N> operator op(vec<T, N> a, identity_t<T> b) {                \
    return a op vec<T, N>(b);                                                 \
  }                                                                           \
  template <typename T, int N>                                                \
  inline vec<T, N> operator op(identity_t<T> a, vec<T, N> b) {                \
    return vec<T, N>(a) op b;                                                 \
  }                                                                           \
  template <typename T, int N>                                                \
  inline vec<T, N>& operator op##=(vec<T, N>& a, identity_t<vec<T, N>> b) {   \
    return a = a op b;                                                        \
  }
EMU_VECTOR_OPERATOR(+)
EMU_VECTOR_OPERATOR(-)
EMU_VECTOR_OPERATOR(*)
EMU_VECTOR_OPERATOR(/)
EMU_VECTOR_OPERATOR(%)
EMU_VECTOR_OPERATOR(&)
EMU_VECTOR_OPERATOR(|)
EMU_VECTOR_OPERATOR(^)
EMU_VECTOR_OPERATOR(<<)
EMU_VECTOR_OPERATOR(>>)
#undef EMU_VECTOR_OPERATOR

#define EMU_VECTOR_COMPARISON(op)                                          \
  EMU_SWIZZLE_OPERATOR(op)                                                 \
  template <typename T, int N>                                             \
  inline vec<bool, N> operator op(vec<T, N> a, identity_t<vec<T, N>> b) {  \
    vec<bool, N> out;                                                      \
    for (int i = 0; i < N; ++i) out.data[i] = a.data[i] op b.data[i];      \
    return out;                                                            \
  }
EMU_VECTOR_COMPARISON(==)
EMU_VECTOR_COMPARISON(!=)
EMU_VECTOR_COMPARISON(<)
EMU_VECTOR_COMPARISON(>)
EMU_VECTOR_COMPARISON(<=)
EMU_VECTOR_COMPARISON(>=)
#undef EMU_VECTOR_COMPARISON

template <typename T, int N>
inline vec<T, N> operator-(vec<T, N> a) {
  for (int i = 0; i < N; ++i) a.data[i] = static_cast<T>(-a.data[i]);
  return a;
}
template <int N>
inline vec<bool, N> operator!(vec<bool, N> a) {
  for (int i = 0; i < N; ++i) a.data[i] = !a.data[i];
  return a;
}
template <int N>
inline bool any(vec<bool, N> a) {
  bool out = false;
  for (int i = 0; i < N; ++i) out |= a.data[i];
  return out;
}
template <int N>
inline bool all(vec<bool, N> a) { return !any(!a); }

template <typename T, int N>
inline T dot(vec<T, N> a, vec<T, N> b) {
  T sum = a.data[0] * b.data[0];
  for (int i = 1; i < N; ++i) sum = sum + a.data[i] * b.data[i];
  return sum;
}

// Without padding and aligned like one element.
template <typename T, int N>
struct packed_vec {
  T data[N];
  packed_vec() = default;
  packed_vec(vec<T, N> from) {
    for (int i = 0; i < N; ++i) data[i] = from.data[i];
  }
  operator vec<T, N>() const {
    vec<T, N> out;
    for (int i = 0; i < N; ++i) out.data[i] = data[i];
    return out;
  }
  T& operator[](int i) { return data[i]; }
  const T& operator[](int i) const { return data[i]; }
};

#define EMU_VECTOR_NAMES(T)                                            \
  typedef vec<T, 2> T##2; typedef vec<T, 3> T##3; typedef vec<T, 4> T##4; \
  typedef packed_vec<T, 2> packed_##T##2;                              \
  typedef packed_vec<T, 3> packed_##T##3;                              \
  typedef packed_vec<T, 4> packed_##T##4;
EMU_VECTOR_NAMES(bool)
EMU_VECTOR_NAMES(char)
EMU_VECTOR_NAMES(uchar)
EMU_VECTOR_NAMES(short)
EMU_VECTOR_NAMES(ushort)
EMU_VECTOR_NAMES(int)
EMU_VECTOR_NAMES(uint)
EMU_VECTOR_NAMES(long)
EMU_VECTOR_NAMES(ulong)
EMU_VECTOR_NAMES(float)
EMU_VECTOR_NAMES(half)
EMU_VECTOR_NAMES(bfloat)
#undef EMU_VECTOR_NAMES

}  // namespace metal
