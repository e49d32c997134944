// Inside fused_moe by whole tiles in FP8 on Hopper: the warps that copy tokens from where they are.
#pragma once

#include "ops/fused_moe/moe_whole_float8_stage.cuh"

namespace atom::ops::device::whole8 {

// Or by two warps, one for each warpgroup: its rows from where their tokens are, in vectors. What
// they copy is published some stages later, when it has come.
class TokenCopier {
 public:
  __device__ TokenCopier(const MoeWholeFloat8Args& args, const Shared& shared, int warpgroup)
      : args_(args),
        shared_(shared),
        warpgroup_(warpgroup),
        row_(threadIdx.x % kWarpSize / kVectors),
        vector_(threadIdx.x % kVectors) {}

  __device__ void run() {
    for_tiles(args_, [&](const Tile& tile) { copy(tile); });
    wait_for_copies<0>();
    while (num_open_ > 0) publish();
  }

 private:
  static constexpr int kVectors = kPanelSize / kVectorSize;  // of a row, each a lane's
  static constexpr int kAtOnce = kWarpSize / kVectors;       // rows
  static constexpr int kTurns = kWarpgroupTokens / kAtOnce;
  static constexpr int kMostOpen = 2;  // stages that are on their way when another one is begun

  __device__ void copy(const Tile& tile) {
    const int first = tile.first_row + warpgroup_ * kWarpgroupTokens;
    const bool exists = first < tile.end_row;
    uint32_t offsets[kTurns];
#pragma unroll
    for (int i = 0; i < kTurns; ++i) {
      // Of rows that do not exist those of others.
      const int row = min(first + row_ + i * kAtOnce, tile.end_row - 1);
      const int choice = gpu_load_from_l2(args_.scratch.shared.choices + row);
      offsets[i] = static_cast<uint32_t>(choice / args_.call.top_k) * args_.x_stride;
    }
    for (int chunk = 0; chunk < args_.num_chunks; ++chunk) {
      wait_for(shared_.empty(stage_.index), stage_.parity ^ 1);
      if (exists) copy_chunk(offsets, chunk * kPanelSize + vector_ * kVectorSize);
      commit_copies();
      stage_.advance(kNumStages);
      if (++num_open_ <= kMostOpen) continue;
      wait_for_copies<kMostOpen>();
      publish();
    }
  }

  __device__ void copy_chunk(const uint32_t (&offsets)[kTurns], int column) const {
    const bool exists = column < args_.num_columns;
    const uint8_t* const source = args_.x_codes + (exists ? column : 0);
    const uint32_t target = shared_.x(stage_.index) + warpgroup_ * kXSize + row_ * kPanelSize;
#pragma unroll
    for (int i = 0; i < kTurns; ++i) {
      // By the swizzle of 128 bytes.
      const int place = (vector_ ^ ((row_ + i * kAtOnce) % 8)) * kVectorSize;
      copy_16(target + i * kAtOnce * kPanelSize + place, source + offsets[i], exists);
    }
  }

  __device__ void publish() {
    fence_before_copies();
    __syncwarp();
    if (threadIdx.x % kWarpSize == 0) arrive(shared_.full(published_.index));
    published_.advance(kNumStages);
    --num_open_;
  }

  static __device__ void copy_16(uint32_t target, const void* source, bool exists) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(target),
                 "l"(source),
                 "r"(exists ? 16 : 0)
                 : "memory");
  }

  const MoeWholeFloat8Args& args_;
  const Shared& shared_;
  const int warpgroup_, row_, vector_;
  StageCursor stage_, published_;
  int num_open_ = 0;
};

}  // namespace atom::ops::device::whole8
