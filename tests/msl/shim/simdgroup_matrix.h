// SPDX-License-Identifier: Apache-2.0
// 8 x 8 matrices spread over a simdgroup, two neighbouring elements per lane. Which
// ones is not in Metal's specification; the map below is the one that MLX's own kernels
// rely on (mlx/backend/metal/kernels/steel/gemm/mma.h).
#pragma once
#include "simdgroup.h"

namespace metal {

template <typename T, int Columns, int Rows>
struct simdgroup_matrix {
  static_assert(Columns == 8 && Rows == 8, "matrices are 8 x 8");
  typedef vec<T, 2> elements;
  elements mine;

  simdgroup_matrix() = default;
  explicit simdgroup_matrix(T diagonal) {
    for (uint i = 0; i < 2; ++i) mine[i] = row() == column() + i ? diagonal : T(0);
  }
  elements& thread_elements() { return mine; }
  const elements& thread_elements() const { return mine; }

  static uint row() {
    const uint lane = emu_lane();
    return ((lane / 4) & 4) + (lane / 2) % 4;
  }
  static uint column() {
    const uint lane = emu_lane();
    return 2 * ((lane / 4) & 2) + 2 * (lane % 2);
  }
  static uint lane_of(uint row, uint column) {
    return (row & 4) * 4 + (column & 4) * 2 + (row & 3) * 2 + (column & 2) / 2;
  }
};

typedef simdgroup_matrix<float, 8, 8> simdgroup_float8x8;
typedef simdgroup_matrix<half, 8, 8> simdgroup_half8x8;
typedef simdgroup_matrix<bfloat, 8, 8> simdgroup_bfloat8x8;

template <typename T, int C, int R>
inline simdgroup_matrix<T, C, R> make_filled_simdgroup_matrix(T value) {
  simdgroup_matrix<T, C, R> m;
  m.mine = vec<T, 2>(value);
  return m;
}
template <typename T, int C, int R>
inline simdgroup_matrix<T, C, R> make_diagonal_simdgroup_matrix(T value) {
  return simdgroup_matrix<T, C, R>(value);
}

// Element (row, column) of the loaded matrix lies at row * stride + column, or with
// `transpose` at column * stride + row. origin is (column, row).
template <typename M>
inline ulong emu_matrix_offset(uint i, ulong stride, ulong2 origin, bool transpose) {
  const ulong row = M::row(), column = M::column() + i;
  return transpose ? (column + origin.y) * stride + row + origin.x
                   : (row + origin.y) * stride + column + origin.x;
}
template <typename T, typename P>
inline void simdgroup_load(simdgroup_matrix<T, 8, 8>& m, const P* from,
                           ulong stride = 8, ulong2 origin = ulong2(0ul),
                           bool transpose = false, EMU_SITE) {
  static_assert(is_same_v<T, P>, "simdgroup_load does not convert");
  emu_exchange("simdgroup_load", emu_site, &emu_site, sizeof(int));
  for (uint i = 0; i < 2; ++i)
    m.mine[i] =
        from[emu_matrix_offset<simdgroup_matrix<T, 8, 8>>(i, stride, origin, transpose)];
}
template <typename T, typename P>
inline void simdgroup_store(const simdgroup_matrix<T, 8, 8>& m, P* to,
                            ulong stride = 8, ulong2 origin = ulong2(0ul),
                            bool transpose = false, EMU_SITE) {
  static_assert(is_same_v<T, P>, "simdgroup_store does not convert");
  emu_exchange("simdgroup_store", emu_site, &emu_site, sizeof(int));
  for (uint i = 0; i < 2; ++i)
    to[emu_matrix_offset<simdgroup_matrix<T, 8, 8>>(i, stride, origin, transpose)] =
        m.mine[i];
}

// d = a b + c in float32, products added in ascending order of the inner index.
template <typename D, typename A, typename B, typename C>
inline void simdgroup_multiply_accumulate(simdgroup_matrix<D, 8, 8>& d,
                                          const simdgroup_matrix<A, 8, 8>& a,
                                          const simdgroup_matrix<B, 8, 8>& b,
                                          const simdgroup_matrix<C, 8, 8>& c,
                                          EMU_SITE) {
  struct Brought {
    A a[2];
    B b[2];
  };
  Brought brought = {{a.mine[0], a.mine[1]}, {b.mine[0], b.mine[1]}};
  emu_values<Brought> all("simdgroup_multiply_accumulate", brought, emu_site);
  typedef simdgroup_matrix<D, 8, 8> M;
  if (all.present != 0xFFFFFFFFu)
    emu_invalid_lane("simdgroup_multiply_accumulate", emu_site, 31);
  float sum[2] = {float(c.mine[0]), float(c.mine[1])};
  for (uint k = 0; k < 8; ++k) {
    const float left = float(all[M::lane_of(M::row(), k)].a[k % 2]);
    const Brought right = all[M::lane_of(k, M::column())];
    for (uint i = 0; i < 2; ++i)
      sum[i] = __builtin_fmaf(left, float(right.b[i]), sum[i]);
  }
  for (uint i = 0; i < 2; ++i) d.mine[i] = D(sum[i]);
}
template <typename D, typename A, typename B>
inline void simdgroup_multiply(simdgroup_matrix<D, 8, 8>& d,
                               const simdgroup_matrix<A, 8, 8>& a,
                               const simdgroup_matrix<B, 8, 8>& b, EMU_SITE) {
  const auto zero = make_filled_simdgroup_matrix<D, 8, 8>(D(0));
  simdgroup_multiply_accumulate(d, a, b, zero, emu_site);
}
template <typename T>
inline simdgroup_matrix<T, 8, 8> operator*(const simdgroup_matrix<T, 8, 8>& a,
                                           const simdgroup_matrix<T, 8, 8>& b) {
  simdgroup_matrix<T, 8, 8> d;
  simdgroup_multiply(d, a, b);
  return d;
}

}  // namespace metal
