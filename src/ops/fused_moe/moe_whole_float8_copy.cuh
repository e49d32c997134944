// Inside fused_moe by whole tiles in FP8 on Hopper: the threads that copy rows of a matrix, tokens
// and scales to the stages. Of the matrix each of a cluster's blocks copies a part to both.
#pragma once

#include "ops/fused_moe/moe_whole_float8_stage.cuh"

namespace atom::ops::device::whole8 {

// Rows of the matrix in the order of their dimensions (see kOrderedRows).
__device__ inline void copy_part_to_all(uint32_t target,
                                        const CUtensorMap* map,
                                        int column,
                                        int first_row,
                                        uint32_t barrier,
                                        uint16_t blocks,
                                        uint64_t policy) {
  asm volatile(
      "cp.async.bulk.tensor.5d.shared::cluster.global.mbarrier::complete_tx::bytes"
      ".multicast::cluster.L2::cache_hint [%0], [%1, {%3, %4, %4, %4, %5}], [%2], %6, %7;" ::"r"(
          target),
      "l"(map),
      "r"(barrier),
      "r"(column),
      "r"(0),
      "r"(first_row / kOrderedRows),
      "h"(blocks),
      "l"(policy)
      : "memory");
}

// By a warp, of which one lane copies: the part whose number is the block's.
template <bool kGated>
__device__ void copy_matrices(const MoeWholeFloat8Args& args, const Shared& shared) {
  constexpr uint16_t kBothBlocks = 3;
  const uint64_t policy = keep_policy();
  const bool copies = is_elected();
  const int rank = cluster_rank();
  StageCursor stage;
  for_tiles(args, [&](const Tile& tile) {
    if (!copies) return;
    const int first_row = tile.expert * args.num_rows + first_row_of<kGated>(args, tile, rank);
    for (int chunk = 0; chunk < args.num_chunks; ++chunk) {
      wait_for(shared.empty(stage.index), stage.parity ^ 1);
      arrive_expecting(shared.full(stage.index), kMatrixSize);
      copy_part_to_all(shared.matrix(stage.index) + rank * kPartSize,
                       &args.matrices,
                       chunk * kPanelSize,
                       first_row,
                       shared.full(stage.index),
                       kBothBlocks,
                       policy);
      stage.advance(kNumStages);
    }
  });
}

// By another: the rows of this block, of those warpgroups that have any.
inline __device__ void copy_x(const MoeWholeFloat8Args& args, const Shared& shared) {
  const uint64_t policy = keep_policy();
  const bool copies = is_elected();
  StageCursor stage;
  for_tiles(args, [&](const Tile& tile) {
    if (!copies) return;
    const int rows = tile.end_row - tile.first_row;
    const int boxes = rows <= 0 ? 0 : rows <= kWarpgroupTokens ? 1 : 2;
    for (int chunk = 0; chunk < args.num_chunks; ++chunk) {
      const uint32_t full = shared.full(stage.index), target = shared.x(stage.index);
      wait_for(shared.empty(stage.index), stage.parity ^ 1);
      arrive_expecting(full, boxes * kXSize);
      for (int i = 0; i < boxes; ++i) {
        copy_box(target + i * kXSize,
                 &args.x,
                 chunk * kPanelSize,
                 tile.first_row + i * kWarpgroupTokens,
                 full,
                 policy);
      }
      stage.advance(kNumStages);
    }
  });
}

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
      offsets[i] = static_cast<uint32_t>(choice / args_.call.top_k) * args_.num_columns;
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
        rows_[i] =
            kGated ? gpu_load_from_l2(args_.scratch.shared.choices + row) / args_.call.top_k : row;
      }
      copy(tile);
    });
  }

 private:
  static constexpr int kLaneTokens = kTileTokens / kWarpSize;

  struct Scales {
    float x[kLaneTokens], part;
  };

  __device__ Scales load(const Tile& tile, int chunk) const {
    Scales scales;
    const float* const x = args_.x_scales + chunk * args_.rows_of_scales;
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
  int rows_[kLaneTokens];  // of scales
  StageCursor stage_;
};

}  // namespace atom::ops::device::whole8
