// Inside attention: the working memory of a task and the matrix product on it, over a kind of
// arithmetic. The template arguments have internal linkage, and so has every instance.
//
// Keys of a tile are packed transposed, so that both products, scores = q . keys and
// out += weights . values, are one small matrix product with a column of the result per lane.
// An element of a result is a chain of additions in the order of the inner dimension, the same
// whether 1 row or kRows rows are computed at a time: that is what makes results independent of
// the batch. Keys that a row does not see have weight 0 and add nothing, exactly.
//
// `Math` provides
//   Simd, Operand      vectors of float; what is multiplied
//   kDepth             operands of the inner dimension that one 32-bit unit holds
//   kRows, kVectors    the largest block of results that registers hold
//   Packed, broadcast, load_packed, packed, multiply_add, store_weights, load_values, and
//   unit operations of packing
#pragma once

#include <stdint.h>

#include "base/rounding.h"
#include "ops/attention/cpu/kernels.h"

namespace atom::ops {

// Whether products are of matrix tiles, of 16 rows at once, instead of vectors: multiply() then is
// Math's, begin() and end() surround it, and kKeyMultiple keys have weights together.
template <typename Math>
concept HasTiles = requires {
  Math::kKeyMultiple;
};

template <typename Math>
constexpr int64_t key_multiple = Math::Simd::kWidth;
template <HasTiles Math>
constexpr int64_t key_multiple<Math> = Math::kKeyMultiple;

template <typename Math>
struct AttentionTiles {
  using Operand = typename Math::Operand;
  static constexpr int kTile = kAttentionTileKeys;
  static constexpr int kTaskRows = kAttentionTaskRows;
  static constexpr int kMaxDim = kAttentionMaxHeadDim;
  static constexpr int kWidth = Math::Simd::kWidth;

  alignas(64) Operand q[kTaskRows * kMaxDim];      // [row][head_dim]
  alignas(64) Operand keys[kTile * kMaxDim];       // [head_dim / kDepth][key][kDepth]
  alignas(64) Operand values[kTile * kMaxDim];     // [key / kDepth][dim][kDepth]
  alignas(64) Operand weights[kTaskRows * kTile];  // [row][key]
  alignas(64) float scores[kTaskRows * kTile];     // [row][key]
  alignas(64) float out[kTaskRows * kMaxDim];      // [row][padded_dim]
  alignas(64) float sums[kTaskRows * kWidth];      // [row][lane]
  alignas(64) float largest[kTaskRows];            // base 2
  alignas(64) char zeros[kMaxDim * sizeof(float)];
  int64_t positions[kTaskRows];

  int64_t head_dim;
  int64_t padded_dim;  // a multiple of the vector width
  int64_t token_size;  // bytes of all heads of a token in a cache
  int64_t sliding_window;
  int64_t rows_of_tiles = 0;  // that Math::begin() was called for
  float scale;                // times log2(e): exponentials are powers of 2
};

// c[r][0 .. kN vectors] (+)= a[r] . b over `depth` units. With `shrink` c is multiplied by
// shrink[r] first, without it c starts from zero.
template <typename Math, int kR, int kN>
void multiply_block(const typename Math::Operand* a,
                    int64_t a_stride,
                    const typename Math::Operand* b,
                    int64_t b_columns,
                    int64_t depth,
                    const float* shrink,
                    float* c,
                    int64_t c_stride) {
  using Simd = typename Math::Simd;
  constexpr int kWidth = Simd::kWidth;
  typename Simd::Float sum[kR][kN];
#pragma GCC unroll 8
  for (int r = 0; r < kR; ++r) {
#pragma GCC unroll 8
    for (int n = 0; n < kN; ++n) {
      sum[r][n] = shrink == nullptr
                      ? Simd::zero()
                      : Simd::mul(Simd::load(c + r * c_stride + n * kWidth), Simd::set(shrink[r]));
    }
  }
  for (int64_t k = 0; k < depth; ++k) {
    typename Math::Packed column[kN];
#pragma GCC unroll 8
    for (int n = 0; n < kN; ++n) column[n] = Math::load_packed(b + n * kWidth * Math::kDepth);
#pragma GCC unroll 8
    for (int r = 0; r < kR; ++r) {
      const typename Math::Packed row = Math::broadcast(a + r * a_stride);
#pragma GCC unroll 8
      for (int n = 0; n < kN; ++n) sum[r][n] = Math::multiply_add(row, column[n], sum[r][n]);
    }
    a += Math::kDepth;
    b += b_columns * Math::kDepth;
  }
#pragma GCC unroll 8
  for (int r = 0; r < kR; ++r) {
#pragma GCC unroll 8
    for (int n = 0; n < kN; ++n) Simd::store(c + r * c_stride + n * kWidth, sum[r][n]);
  }
}

// The same for any number of vectors.
template <typename Math, int kR>
void multiply(const typename Math::Operand* a,
              int64_t a_stride,
              const typename Math::Operand* b,
              int64_t b_columns,
              int64_t depth,
              int64_t vectors,
              const float* shrink,
              float* c,
              int64_t c_stride) {
  constexpr int kWidth = Math::Simd::kWidth;
  while (vectors > 0) {
    int64_t done = vectors < Math::kVectors ? vectors : Math::kVectors;
    switch (done) {
      case 1:
        multiply_block<Math, kR, 1>(a, a_stride, b, b_columns, depth, shrink, c, c_stride);
        break;
      case 2:
        multiply_block<Math, kR, 2>(a, a_stride, b, b_columns, depth, shrink, c, c_stride);
        break;
      default:
        if constexpr (Math::kVectors > 2) {
          if (done == 3) {
            multiply_block<Math, kR, 3>(a, a_stride, b, b_columns, depth, shrink, c, c_stride);
          } else {
            multiply_block<Math, kR, 4>(a, a_stride, b, b_columns, depth, shrink, c, c_stride);
          }
        }
    }
    vectors -= done;
    b += done * kWidth * Math::kDepth;
    c += done * kWidth;
  }
}

}  // namespace atom::ops
