// Inside fused_moe by wide tiles in FP8 on Hopper: a tile's sums, as threads have them.
#pragma once

#include "ops/fused_moe/moe_wide_float8_tiles.cuh"

namespace atom::ops::device::wide8 {

// Of a warpgroup's two products; of each 16 tokens a lane (g, q) = (lane / 4, lane % 4) has eight:
// for tokens 2 q and 2 q + 1, and those eight further, rows g and g + 8 of the warp.
template <int kUnits>
using Sums = float[kProducts][8 * kUnits];

// The places of a lane's values of 16 tokens in its sums: by token, then by row.
__device__ constexpr int place_of_sum(int unit, int token, int row) {
  return 8 * unit + token / 2 * 4 + row * 2 + token % 2;
}

// What both outputs know of the thread.
struct Place {
  int warp = threadIdx.x / kWarpSize, lane = threadIdx.x % kWarpSize;
  int warpgroup = warp / 4;
  int g = lane / 4, q = lane % 4;
};

// By scales of rows of the matrix, and with their biases: `rows` are the lane's of each product.
template <int kUnits>
__device__ __forceinline__ void scale_rows(const MoeWideFloat8Args& args,
                                           const Tile& tile,
                                           const int (&rows)[kProducts][2],
                                           Sums<kUnits>& sums) {
  const bool has_bias = args.own.bias != nullptr;
  if (args.scales != RowScales::kEach && !has_bias) return;
  const float* const scales = args.own.scales + tile.expert * args.own.scale_stride;
#pragma unroll
  for (int m = 0; m < kProducts; ++m) {
    float factors[2], biases[2];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int row = min(rows[m][i], args.num_rows - 1);
      factors[i] = args.scales == RowScales::kEach ? gpu_load_from_l2(scales + row) : 1.0f;
      biases[i] = bias_at(args.own, tile.expert, row, args.num_rows);
    }
#pragma unroll
    for (int i = 0; i < 8 * kUnits; ++i) {
      sums[m][i] = fmaf(sums[m][i], factors[i / 2 % 2], biases[i / 2 % 2]);
    }
  }
}

// `scales` of 16 tokens, by place_of_token(), for each of the units.
template <int kUnits>
__device__ __forceinline__ void add_scaled(float (&sums)[8 * kUnits],
                                           const float (&products)[8 * kUnits],
                                           uint32_t scales) {
#pragma unroll
  for (int u = 0; u < kUnits; ++u) {
    const uint4 bits = load_shared(scales + u * kTokenUnit * 4);
    const float of_token[4] = {__uint_as_float(bits.x),
                               __uint_as_float(bits.y),
                               __uint_as_float(bits.z),
                               __uint_as_float(bits.w)};
#pragma unroll
    for (int t = 0; t < 4; ++t) {
#pragma unroll
      for (int row = 0; row < 2; ++row) {
        const int i = place_of_sum(u, t, row);
        sums[i] = fmaf(products[i], of_token[t], sums[i]);
      }
    }
  }
}

__device__ inline void store_shared_float(uint32_t address, float value) {
  asm volatile("st.shared.f32 [%0], %1;" ::"r"(address), "f"(value) : "memory");
}

__device__ inline float load_shared_float(uint32_t address) {
  float value;
  asm volatile("ld.shared.f32 %0, [%1];" : "=f"(value) : "r"(address) : "memory");
  return value;
}

// The larger of this lane's and the other lane's value, of which this one keeps the second or the
// first.
__device__ inline float larger(float first, float second, bool keeps_second, int distance) {
  const float other = __shfl_xor_sync(0xffffffffu, keeps_second ? first : second, distance);
  return fmaxf(keeps_second ? second : first, other);
}

}  // namespace atom::ops::device::wide8
