// Inside the linear in FP8 with scales of groups on Hopper: its shared memory, the order of tiles,
// and the threads that copy x and the weight to the stages.
#pragma once

#include "ops/device/async_copy.cuh"
#include "ops/device/programmatic_launch.cuh"
#include "ops/device/reductions.cuh"
#include "ops/linear/blocks/launch.h"
#include "ops/linear/blocks/product.cuh"

namespace atom::ops::device::blocks {

constexpr int kPanelSize = 128;  // bytes of k, which are a group
constexpr int kWarpgroupSize = 128, kMatrixRows = 64;
constexpr int kNumConsumers = 2 * kWarpgroupSize, kNumThreads = kNumConsumers + kWarpgroupSize;
constexpr int kConsumerWarps = kNumConsumers / kWarpSize;
constexpr int kWarpRows = 16;                     // of a matrix
constexpr int kBoxColumns = 64;                   // of y that leave at once, 128 bytes
constexpr int kBoxSize = kWarpRows * kPanelSize;  // of a warp's rows of y
constexpr int kMaxSharedSize = 227 << 10;
constexpr int kBarrierSize = 8;

// kMatrices: of 64 rows of x that a warpgroup multiplies. kClusterSize: row tiles that share the
// copies of the weight.
template <int kMatricesOf, int kColumnsOf, int kClusterSizeOf>
struct Shape {
  static constexpr int kMatrices = kMatricesOf, kColumns = kColumnsOf;
  static constexpr int kClusterSize = kClusterSizeOf;
  static constexpr int kRows = 2 * kMatrices * kMatrixRows;
  static constexpr int kXSize = kRows * kPanelSize;
  static constexpr int kHalfColumns = kColumns / 2, kHalfSize = kHalfColumns * kPanelSize;
  static constexpr int kStageSize = kXSize + 2 * kHalfSize;
  static constexpr int kBoxes = kColumns / kBoxColumns;
  static constexpr int kOutSize = kConsumerWarps * kBoxes * kBoxSize;
  static constexpr int kNumStages = (kMaxSharedSize - kOutSize - 256) / kStageSize;
  static constexpr int kOutOffset = kNumStages * kStageSize;
  static constexpr int kBarriersOffset = kOutOffset + kOutSize;
  static constexpr int kSharedSize = kBarriersOffset + 2 * kNumStages * kBarrierSize;
  static_assert(kNumStages >= 2 && kSharedSize <= kMaxSharedSize);
};

// Where things are in shared memory.
template <typename S>
class Shared {
 public:
  __device__ explicit Shared(const uint8_t* memory) : base_(shared_address(memory)) {}

  __device__ uint32_t x(int stage) const { return base_ + stage * S::kStageSize; }
  __device__ uint32_t weight(int stage) const { return x(stage) + S::kXSize; }
  // A warp's rows of y.
  __device__ uint32_t rows(int warp) const {
    return base_ + S::kOutOffset + warp * S::kBoxes * kBoxSize;
  }
  __device__ uint32_t full(int stage) const {
    return base_ + S::kBarriersOffset + stage * kBarrierSize;
  }
  __device__ uint32_t empty(int stage) const { return full(S::kNumStages + stage); }

 private:
  const uint32_t base_;
};

// visit(row tile, column tile) for all tiles of the block.
template <typename S, typename Visit>
__device__ void for_tiles(const BlocksArgs& args, Visit&& visit) {
  const int rank = S::kClusterSize > 1 ? cluster_rank() : 0;
  const int num_steps = args.num_row_steps * args.num_column_steps;
  const int group_size = args.group_rows * args.num_column_steps;
  for (int i = blockIdx.x / S::kClusterSize; i < num_steps; i += args.num_clusters) {
    const int first_row = i / group_size * args.group_rows;
    const int num_rows = min(args.group_rows, args.num_row_steps - first_row);
    const int local = i % group_size;
    visit((first_row + local % num_rows) * S::kClusterSize + rank, local / num_rows);
  }
}

// By one thread: the rows of x.
template <typename S>
__device__ void copy_x(const BlocksArgs& args, const Shared<S>& shared) {
  const uint64_t policy = keep_policy();
  StageCursor stage;
  wait_for_previous_grid();
  for_tiles<S>(args, [&](int row_tile, int) {
    for (int group = 0; group < args.num_groups; ++group) {
      const uint32_t full = shared.full(stage.index);
      wait_for(shared.empty(stage.index), stage.parity ^ 1);
      arrive_expecting(full, S::kStageSize);
      copy_box(shared.x(stage.index),
               &args.x,
               group * kPanelSize,
               row_tile * S::kRows,
               full,
               policy);
      stage.advance(S::kNumStages);
    }
  });
}

// By another: the weight's part of a tile, or of it a half for both blocks of a cluster.
template <typename S>
__device__ void copy_weight(const BlocksArgs& args, const Shared<S>& shared) {
  constexpr uint16_t kBothBlocks = 3;
  const bool gated = args.params.epilogue == LinearEpilogue::kSiluAndMul;
  const int step = gated ? S::kHalfColumns : S::kColumns;
  const uint64_t policy = keep_policy();
  StageCursor stage;
  for_tiles<S>(args, [&](int, int column_tile) {
    for (int group = 0; group < args.num_groups; ++group) {
      const uint32_t target = shared.weight(stage.index), full = shared.full(stage.index);
      const int column = group * kPanelSize, row = column_tile * step;
      wait_for(shared.empty(stage.index), stage.parity ^ 1);
      if constexpr (S::kClusterSize > 1) {
        const int rank = cluster_rank();
        copy_box_to_all(target + rank * S::kHalfSize,
                        &args.weight,
                        column,
                        row + rank * args.weight_stride,
                        full,
                        kBothBlocks,
                        policy);
      } else {
        copy_box(target, &args.weight, column, row, full, policy);
        copy_box(target + S::kHalfSize,
                 &args.weight,
                 column,
                 row + args.weight_stride,
                 full,
                 policy);
      }
      stage.advance(S::kNumStages);
    }
  });
}

}  // namespace atom::ops::device::blocks
