// Inside fused_moe by whole tiles in FP8 on Hopper: the warp that copies scales to the stages.
#pragma once

#include "ops/fused_moe/moe_whole_float8_stage.cuh"

namespace atom::ops::device::whole8 {

// By a third: scales of tokens, and those of the parts of the matrix.
template <bool kGated>
class ScaleCopier {
 public:
  __device__ ScaleCopier(const MoeWholeFloat8Args& args, const Shared& shared)
      : args_(args), shared_(shared), lane_(threadIdx.x % kWarpSize) {}

  __device__ void run() {
    for_tiles(args_, [&](const Tile& tile) {
#pragma unroll
      for (int i = 0; i < kLaneTokens; ++i) {
        // Of rows that do not exist those of others.
        const int row = min(tile.first_row + lane_ + i * kWarpSize, tile.end_row - 1);
        rows_[i] = args_.scale_step * row_of(row);
      }
      copy(tile);
    });
  }

 private:
  static constexpr int kLaneTokens = kTileTokens / kWarpSize;

  struct Scales {
    float x[kLaneTokens], part;
  };

  // Of scales: a row's token, or itself.
  __device__ int row_of(int row) const {
    if constexpr (!kGated) return row;
    return gpu_load_from_l2(args_.scratch.shared.choices + row) / args_.call.top_k;
  }

  __device__ Scales load(const Tile& tile, int chunk) const {
    Scales scales;
    const float* const x = args_.x_scales + chunk * args_.chunk_step;
#pragma unroll
    for (int i = 0; i < kLaneTokens; ++i) scales.x[i] = gpu_load_from_l2(x + rows_[i]);
    scales.part = load_part(tile, lane_ % kParts, chunk);
    return scales;
  }

  __device__ float load_part(const Tile& tile, int part, int chunk) const {
    if (args_.scales == MoeRowScales::kEach || args_.own.scales == nullptr) return 1.0f;
    const float* const own = args_.own.scales + tile.expert * args_.own.scale_stride;
    if (args_.scales == MoeRowScales::kAll) return *own;
    const int row = min(first_row_of<kGated>(args_, tile, part), args_.num_rows - 1);
    return own[row / kPartRows * args_.own.scales_across + chunk];
  }

  __device__ void copy(const Tile& tile) {
    Scales next = load(tile, 0);
    for (int chunk = 0; chunk < args_.num_chunks; ++chunk) {
      const Scales scales = next;
      next = load(tile, min(chunk + 1, args_.num_chunks - 1));
      wait_for(shared_.empty(stage_.index), stage_.parity ^ 1);
      const uint32_t target = shared_.scales(stage_.index) + lane_ * 4;
#pragma unroll
      for (int i = 0; i < kLaneTokens; ++i) store(target + i * kWarpSize * 4, scales.x[i]);
      if (lane_ < kParts) store(target + kTileTokens * 4, scales.part);
      __syncwarp();
      if (lane_ == 0) arrive(shared_.full(stage_.index));
      stage_.advance(kNumStages);
    }
  }

  static __device__ void store(uint32_t address, float value) {
    asm volatile("st.shared.f32 [%0], %1;" ::"r"(address), "f"(value) : "memory");
  }

  const MoeWholeFloat8Args& args_;
  const Shared& shared_;
  const int lane_;
  int rows_[kLaneTokens];  // where their scales of a chunk are
  StageCursor stage_;
};

}  // namespace atom::ops::device::whole8
