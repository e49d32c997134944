// Inside fused_moe by whole tiles in FP8 on Hopper: what becomes of a tile's sums with the
// activation.
#pragma once

#include "ops/fused_moe/moe_fast_activation.cuh"
#include "ops/fused_moe/moe_whole_float8_stage.cuh"

namespace atom::ops::device::whole8 {

// Of a part; lane (g, q) = (lane / 4, lane % 4) has rows g and g + 8 of a warp's 16.
constexpr int kSums = kPartRows / 2;
using Sums = float[kParts][kSums];
constexpr int kRuns = kPartRows / kOrderedRows, kRunLength = 8;  // outputs that follow each other

// The place of a lane's value of a run in its sums.
__device__ constexpr int place_of_sum(int run, int row, int i) {
  return run * 16 + i / 2 * 4 + row * 2 + i % 2;
}

// What both outputs know of the thread.
struct Place {
  int warpgroup = __shfl_sync(0xffffffffu, threadIdx.x / kWarpgroupSize, 0);
  int row = threadIdx.x / kWarpSize * 16 + threadIdx.x % kWarpSize / 4;  // of the tile
  int q = threadIdx.x % 4;
  // Of a part, the first output of a run.
  __device__ int output_of(int run) const { return run * kOrderedRows + q * kRunLength; }
};

// By scales of rows of the matrix, from `first` on.
__device__ __forceinline__ void scale_outputs(const MoeWholeFloat8Args& args,
                                              const Tile& tile,
                                              const Place& at,
                                              int first,
                                              float (&sums)[kSums]) {
  if (args.scales != MoeRowScales::kEach) return;
  const float* const scales = args.own.scales + tile.expert * args.own.scale_stride;
#pragma unroll
  for (int run = 0; run < kRuns; ++run) {
#pragma unroll
    for (int i = 0; i < kRunLength; ++i) {
      const float scale = scales[min(first + at.output_of(run) + i, args.num_rows - 1)];
#pragma unroll
      for (int row = 0; row < 2; ++row) sums[place_of_sum(run, row, i)] *= scale;
    }
  }
}

// With the activation: the first part has gates, the second their ups. Codes of a token's 128
// outputs have one scale.
class CodeOutput {
 public:
  __device__ CodeOutput(const MoeWholeFloat8Args& args, const Shared&)
      : args_(args), activation_(args.call.activation) {}

  __device__ void finish() const {}

  __device__ __forceinline__ void store(const Tile& tile, Sums& sums) const {
    const int first = tile.column_tile * kPartRows;
    scale_outputs(args_, tile, at_, first, sums[0]);
    scale_outputs(args_, tile, at_, args_.num_rows / 2 + first, sums[1]);
    if (activation_.is_clamped()) {
      activate<true>(sums);
    } else {
      activate<false>(sums);
    }
#pragma unroll
    for (int row = 0; row < 2; ++row) store_codes(tile, row, sums[0]);
  }

 private:
  template <bool kClamped>
  __device__ __forceinline__ void activate(Sums& sums) const {
#pragma unroll
    for (int i = 0; i < kSums; i += 2) {
      float gates[2] = {sums[0][i], sums[0][i + 1]};
      activation_.apply<kClamped>(gates, {sums[1][i], sums[1][i + 1]});
      sums[0][i] = gates[0];
      sums[0][i + 1] = gates[1];
    }
  }

  __device__ __forceinline__ bool exists(const Tile& tile, int run) const {
    return tile.column_tile * kPartRows + run * kOrderedRows < args_.num_outputs;
  }

  __device__ __forceinline__ void store_codes(const Tile& tile,
                                              int row_of_lane,
                                              const float (&values)[kSums]) const {
    constexpr uint32_t kAllLanes = 0xffffffffu;
    float largest = 0;
#pragma unroll
    for (int run = 0; run < kRuns; ++run) {
      if (!exists(tile, run)) break;
#pragma unroll
      for (int i = 0; i < kRunLength; ++i) {
        largest = fmaxf(largest, fabsf(values[place_of_sum(run, row_of_lane, i)]));
      }
    }
    largest = fmaxf(largest, __shfl_xor_sync(kAllLanes, largest, 1));
    largest = fmaxf(largest, __shfl_xor_sync(kAllLanes, largest, 2));
    // Of less than that the codes are zeros, and no reciprocal is infinite.
    const float scale = largest > 0x1p-100f ? largest / kFloat8Max : 1.0f;
    const float factor = 1.0f / scale;
    const int row = tile.first_row + at_.row + row_of_lane * 8;
    if (row >= tile.end_row) return;
    if (at_.q == 0) {
      const int64_t group = tile.column_tile;
      const int64_t num_rows = int64_t{args_.call.num_tokens} * args_.call.top_k;
      args_.scratch.activated_scales[group * num_rows + row] = scale;
    }
    auto* const out = static_cast<uint8_t*>(args_.scratch.shared.activated) +
                      int64_t{row} * args_.num_outputs + tile.column_tile * kPartRows;
#pragma unroll
    for (int run = 0; run < kRuns; ++run) {
      if (!exists(tile, run)) break;
      uint32_t words[2];
#pragma unroll
      for (int word = 0; word < 2; ++word) {
        const auto value = [&](int i) {
          return values[place_of_sum(run, row_of_lane, word * 4 + i)] * factor;
        };
        words[word] = float8_pair(value(0), value(1)) | float8_pair(value(2), value(3)) << 16;
      }
      *reinterpret_cast<uint2*>(out + at_.output_of(run)) = uint2{words[0], words[1]};
    }
  }

  const MoeWholeFloat8Args& args_;
  const FastActivation activation_;
  const Place at_;
};

}  // namespace atom::ops::device::whole8
