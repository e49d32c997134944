// Inside gated_delta_rule: small float32 matrix products over a vector type, which the file of each
// instruction set includes. `Simd` has internal linkage, and so has every instance.
#pragma once

#include <stdint.h>

#include "tensor/element.h"

namespace atom::ops {

// A factor on the left: element (row, k) is data[row * row_stride + k * k_stride].
struct DeltaFactor {
  const float* data;
  int64_t row_stride;
  int64_t k_stride;
};

// Rows of contiguous columns, a multiple of a vector's width of them.
struct DeltaRows {
  float* data;
  int64_t stride;
};

// What becomes of the old content: out = a b, or out = scale * out + a b.
enum class DeltaInto { kOverwritten, kScaled };

// kR rows by kV vectors of columns.
template <typename Simd, int kR, int kV, DeltaInto into>
static inline __attribute__((always_inline)) void multiply_tile(const DeltaFactor& a,
                                                                const float* b,
                                                                int64_t b_stride,
                                                                int64_t depth,
                                                                float scale,
                                                                float* out,
                                                                int64_t out_stride) {
  using Float = typename Simd::Float;
  constexpr int kWidth = Simd::kWidth;
  Float sums[kR][kV];
#pragma GCC unroll 8
  for (int r = 0; r < kR; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < kV; ++v) {
      sums[r][v] = into == DeltaInto::kScaled
                       ? Simd::mul(Simd::set(scale), Simd::load(out + r * out_stride + v * kWidth))
                       : Simd::zero();
    }
  }
  const float* left = a.data;
  for (int64_t k = 0; k < depth; ++k, left += a.k_stride, b += b_stride) {
    Float right[kV];
#pragma GCC unroll 4
    for (int v = 0; v < kV; ++v) right[v] = Simd::load(b + v * kWidth);
#pragma GCC unroll 8
    for (int r = 0; r < kR; ++r) {
      const Float factor = Simd::set(left[r * a.row_stride]);
#pragma GCC unroll 4
      for (int v = 0; v < kV; ++v) sums[r][v] = Simd::fma(factor, right[v], sums[r][v]);
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < kR; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < kV; ++v) Simd::store(out + r * out_stride + v * kWidth, sums[r][v]);
  }
}

// 24 sums of AVX-512's 32 registers, 12 of AVX2's 16.
constexpr int kDeltaTileRows = 6;

template <typename Simd, int kV, DeltaInto into>
void multiply_columns(const DeltaFactor& a,
                      DeltaRows b,
                      int64_t depth,
                      float scale,
                      DeltaRows out,
                      int64_t num_rows,
                      bool lower) {
  constexpr int kR = kDeltaTileRows;
  int64_t row = 0;
  const auto tile = [&]<int kRows>(ElementTag<float[kRows]>) {
    const int64_t used = lower && row + kRows < depth ? row + kRows : depth;
    multiply_tile<Simd, kRows, kV, into>({a.data + row * a.row_stride, a.row_stride, a.k_stride},
                                         b.data,
                                         b.stride,
                                         used,
                                         scale,
                                         out.data + row * out.stride,
                                         out.stride);
    row += kRows;
  };
  while (row + kR <= num_rows) tile(ElementTag<float[kR]>{});
  while (row + 2 <= num_rows) tile(ElementTag<float[2]>{});
  if (row < num_rows) tile(ElementTag<float[1]>{});
}

// out [num_rows, num_columns] from a [num_rows, depth] b [depth, num_columns]. With `lower`, a is
// lower triangular with its diagonal: what is above it is not multiplied, except beside it.
template <typename Simd, DeltaInto into>
void multiply(const DeltaFactor& a,
              DeltaRows b,
              int64_t depth,
              float scale,
              DeltaRows out,
              int64_t num_rows,
              int64_t num_columns,
              bool lower = false) {
  constexpr int kWidth = Simd::kWidth;
  constexpr int kMost = kWidth == 16 ? 4 : 2;
  int64_t column = 0;
  const auto columns = [&]<int kV>(ElementTag<float[kV]>) {
    multiply_columns<Simd, kV, into>(a,
                                     {b.data + column, b.stride},
                                     depth,
                                     scale,
                                     {out.data + column, out.stride},
                                     num_rows,
                                     lower);
    column += kV * kWidth;
  };
  while (column + kMost * kWidth <= num_columns) columns(ElementTag<float[kMost]>{});
  while (column < num_columns) columns(ElementTag<float[1]>{});
}

}  // namespace atom::ops
