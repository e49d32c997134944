// Inside fused_moe's kernels for few tokens: products of rows whose groups of columns have scales.
// The lanes of a row share each 16 bytes, a word for each, so that what the tensor cores add up at
// once has one scale.
#pragma once

#include "ops/fused_moe/moe_stream_integers.cuh"
#include "ops/fused_moe/moe_stream_math.cuh"
#include "ops/fused_moe/moe_stream_plan.h"

namespace atom::ops::device {

__device__ inline float load_shared_float(uint32_t address) {
  return __uint_as_float(load_shared_word(address));
}

// sums += part times the scales of the step's group `group`.
__device__ inline void add_scaled(const StepPlace& place,
                                  int group,
                                  const TileSums& part,
                                  TileSums& sums) {
#pragma unroll
  for (int b = 0; b < 2; ++b) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const float scale = load_shared_float(place.scales + (8 * b + i) * place.row_scales +
                                            group * int{sizeof(float)});
      sums[b][i] = fmaf(scale, part[b][i], sums[b][i]);
      sums[b][i + 2] = fmaf(scale, part[b][i + 2], sums[b][i + 2]);
    }
  }
}

// Adds the products of one step of a format with groups, of which the row has so many vectors of 16
// bytes, and none of a group in part.
template <typename W, int kTokens, int kRowStride>
__device__ inline void multiply_groups(const StepPlace& place, int num_vectors, TileSums& sums) {
  constexpr int kVectors = kStepSize / kVectorSize, kVectorColumns = 2 * kVectorSize;
  constexpr bool kScalesEach = kGroupColumns<W> == kVectorColumns;
  static_assert(kScalesEach || kGroupColumns<W> == kVectors * kVectorColumns);
  if (num_vectors <= 0) return;
  TileSums part = {};
#pragma unroll
  for (int v = 0; v < kVectors; ++v) {
    if (v >= num_vectors) break;
    const uint32_t x = place.x + v * kVectorColumns * 2;
    const uint4 first = load_shared(x);
    const uint4 second = kTokens > 8 ? load_shared(x + 8 * place.x_row_stride) : uint4{};
#pragma unroll
    for (int b = 0; b < 2; ++b) {
      uint32_t pairs[4];
      const uint32_t row = place.rows + 8 * b * kRowStride + v * kVectorSize;
      RowFormat<W>::expand(load_shared_word(row), pairs);
      multiply_tile(part[b], {first.x, second.x, first.y, second.y}, pairs[0], pairs[1]);
      multiply_tile(part[b], {first.z, second.z, first.w, second.w}, pairs[2], pairs[3]);
    }
    if (!kScalesEach) continue;
    add_scaled(place, v, part, sums);
#pragma unroll
    for (int i = 0; i < 8; ++i) part[i / 4][i % 4] = 0;
  }
  if (!kScalesEach) add_scaled(place, 0, part, sums);
}

}  // namespace atom::ops::device
