// Inside fused_moe for many tokens by experts in FP8 on Hopper: what becomes of a tile's sums.
#pragma once

#include "ops/fused_moe/moe_float8_stage.cuh"

namespace atom::ops::device::moe8 {

constexpr int kHalfSums = kTileColumns / 4;  // of a thread, of half of a tile's columns
using Sums = float[2][kHalfSums];

// Of a warp: 16 rows of a tile. Outputs go to shared memory, from where the copy engine takes them
// while the next tile is multiplied: with the activation codes, else weighted results.
template <bool kGated>
class Output {
 public:
  __device__ Output(const MoeFloat8Args& args, uint8_t* rows)
      : args_(args), rows_(shared_address(rows)), lane_(threadIdx.x % kWarpSize) {}

  // `row`: the warp's first.
  __device__ void store(Sums& sums, const MoeTile& tile, int row) const {
    // Lanes that have issued copies of the last tile.
    wait_for_reads_of_stores();
    __syncwarp();
    scale(sums, tile);
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      if constexpr (kGated) {
        store_codes(sums, tile, row, i);
      } else {
        store_weighted(sums, tile, row, i);
      }
    }
    fence_before_copies();
    __syncwarp();
    const int own = row + lane_;
    if (lane_ < kWarpRows && own < tile.end_row) copy_row(tile, own);
    commit_stores();
  }

  __device__ void finish() const {
    wait_for_stores();
  }

 private:
  static constexpr int kRowStride = Shared<kGated>::kRowStride;
  static constexpr int kOutputs = kGated ? kTileColumns / 2 : kTileColumns;

  // By scales of rows of the matrix.
  __device__ void scale(Sums& sums, const MoeTile& tile) const {
    if (args_.scales != RowScales::kEach) return;
    const float* scales = args_.own.scales + tile.expert * args_.own.scale_stride;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int first = first_row_of<kGated>(args_, tile, half) + lane_ % 4 * 2;
#pragma unroll
      for (int i = 0; i < kHalfSums; i += 4) {
#pragma unroll
        for (int j = 0; j < 2; ++j) {
          const float factor = scales[min(first + 2 * i + j, args_.num_rows - 1)];
          sums[half][i + j] *= factor;
          sums[half][i + j + 2] *= factor;
        }
      }
    }
  }

  // Of the thread's row of the first or the other eight.
  __device__ void store_codes(Sums& sums, const MoeTile& tile, int row, int eight) const {
    const bool is_clamped = args_.call.activation.kind == GatedActivationKind::kClampedSwiGlu;
    float largest = 0;
#pragma unroll
    for (int i = 0; i < kHalfSums; i += 4) {
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        float& value = sums[0][i + 2 * eight + j];
        const float up = sums[1][i + 2 * eight + j];
        value = is_clamped ? clamped_swiglu(args_.call.activation, value, up) : silu_of(value) * up;
        const int output = tile.column_tile * kOutputs + 2 * i + lane_ % 4 * 2 + j;
        if (output >= args_.num_outputs) value = 0;
        largest = fmaxf(largest, fabsf(value));
      }
    }
    largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, 1));
    largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, 2));
    // Of less than that the codes are zeros, and no reciprocal is infinite.
    const float scale = largest > 0x1p-100f ? largest / kFloat8Max : 1.0f;
    const float reciprocal = 1.0f / scale;
    const uint32_t target = rows_ + (8 * eight + lane_ / 4) * kRowStride + lane_ % 4 * 2;
#pragma unroll
    for (int i = 0; i < kHalfSums; i += 4) {
      const float* pair = &sums[0][i + 2 * eight];
      const uint32_t codes = float8_pair(pair[0] * reciprocal, pair[1] * reciprocal);
      asm volatile("st.shared.b16 [%0], %1;" ::"r"(target + 2 * i),
                   "h"(static_cast<uint16_t>(codes))
                   : "memory");
    }
    const int own = row + 8 * eight + lane_ / 4;
    if (lane_ % 4 == 0 && own < tile.end_row) {
      args_.scratch.activated_scales[int64_t{own} * args_.num_column_tiles + tile.column_tile] =
          scale;
    }
  }

  __device__ void store_weighted(const Sums& sums, const MoeTile& tile, int row, int eight) const {
    const int own = min(row + 8 * eight + lane_ / 4, tile.end_row - 1);
    const float weight =
        gpu_load_from_l2(args_.call.weights + gpu_load_from_l2(args_.tiles().choices + own));
    const uint32_t target = rows_ + (8 * eight + lane_ % 8) * kRowStride + lane_ / 8 * 16;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
#pragma unroll
      for (int i = 0; i < kHalfSums; i += 16) {
        uint32_t matrices[4];
#pragma unroll
        for (int m = 0; m < 4; ++m) {
          const float* pair = &sums[half][i + 4 * m + 2 * eight];
          matrices[m] = bits_of_pair<BFloat16>(weight * pair[0], weight * pair[1]);
        }
        store_matrices(target + half * kTileColumns + 4 * i, matrices);
      }
    }
  }

  __device__ void copy_row(const MoeTile& tile, int row) const {
    const int first_output = tile.column_tile * kOutputs;
    const int count = min(kOutputs, args_.num_outputs - first_output);
    const uint32_t source = rows_ + lane_ * kRowStride;
    if constexpr (kGated) {
      store_bulk(static_cast<uint8_t*>(args_.tiles().activated) + int64_t{row} * args_.num_outputs +
                     first_output,
                 source,
                 count);
    } else {
      const int64_t choice = gpu_load_from_l2(args_.tiles().choices + row);
      store_bulk(
          static_cast<BFloat16*>(args_.scratch.results) + choice * args_.num_outputs + first_output,
          source,
          2 * count);
    }
  }

  const MoeFloat8Args& args_;
  const uint32_t rows_;
  const int lane_;
};

}  // namespace atom::ops::device::moe8
