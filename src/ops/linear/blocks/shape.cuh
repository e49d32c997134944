// Inside the linear in FP8 with scales of groups on Hopper: the sizes of a kernel, its shared
// memory, and which tiles and groups of k a block has.
#pragma once

#include "ops/device/async_copy.cuh"
#include "ops/device/reductions.cuh"
#include "ops/linear/blocks/launch.h"
#include "ops/linear/blocks/product.cuh"

namespace atom::ops::device::blocks {

constexpr int kPanelSize = 128;  // bytes of k, which are a group
constexpr int kWarpgroupSize = 128, kMatrixRows = 64;
constexpr int kNumConsumers = 2 * kWarpgroupSize, kNumThreads = kNumConsumers + kWarpgroupSize;
constexpr int kConsumerWarps = kNumConsumers / kWarpSize;
constexpr int kWarpRows = 16;                     // of a matrix
constexpr int kBoxSize = kWarpRows * kPanelSize;  // of a warp's rows of y, what leaves at once
constexpr int kMaxSharedSize = 227 << 10;
constexpr int kBarrierSize = 8;
constexpr int kScaleWarps = 2, kScaleThreads = kScaleWarps * kWarpSize;  // that copy scales

// kMatrices: of 64 rows of x that a warpgroup multiplies. kClusterRows: row tiles that share the
// copies of the weight; kClusterColumns: column tiles that share those of x. kParts: of k, each by
// a block of the cluster. kTakesTurns: the warpgroups at the matrix units; otherwise one that has
// registers for it begins the products of a group before it adds those of the group before.
template <int kMatricesOf,
          int kColumnsOf,
          int kClusterRowsOf,
          int kClusterColumnsOf = 1,
          int kPartsOf = 1,
          bool kTakesTurnsOf = true>
struct Shape {
  static constexpr bool kTakesTurns = kTakesTurnsOf;
  static constexpr int kMatrices = kMatricesOf, kColumns = kColumnsOf;
  static constexpr bool kGoesAhead = !kTakesTurns && kMatrices == 1 && kColumns <= 128;
  static constexpr int kClusterRows = kClusterRowsOf, kClusterColumns = kClusterColumnsOf;
  static constexpr int kParts = kPartsOf;
  static constexpr int kSharers = kClusterRows * kClusterColumns;  // that copy for each other
  static constexpr int kClusterSize = kSharers * kParts;
  static_assert(kClusterRows <= 2 && kClusterColumns <= 2 && kClusterSize <= 4);
  // Columns that have one scale of the weight, and those of y that leave at once.
  static constexpr int kUnit = kColumns % 64 == 0 ? 64 : 32, kUnits = kColumns / kUnit;
  static constexpr int kBoxColumns = kUnit;
  static constexpr int kRows = 2 * kMatrices * kMatrixRows;
  static constexpr int kXSize = kRows * kPanelSize;
  static constexpr int kHalfColumns = kColumns / 2, kHalfSize = kHalfColumns * kPanelSize;
  static constexpr int kWeightSize = 2 * kHalfSize, kStageSize = kXSize + kWeightSize;
  static constexpr int kScalesSize = (kRows + 4) * int{sizeof(float)};  // with those of the units
  static_assert(kUnits <= 4);
  static constexpr int kOutSize = kConsumerWarps * kBoxSize;
  // A warp's sums, and those that the other parts bring to the warps that this block finishes.
  static constexpr int kSumsSize = kWarpSize * kColumns / 2 * int{sizeof(float)};
  static constexpr int kBroughtSize = kConsumerWarps / kParts * (kParts - 1) * kSumsSize;
  static_assert(kParts == 1 || kMatrices == 1);
  static constexpr int kNumStages =
      (kMaxSharedSize - kOutSize - kBroughtSize) / (kStageSize + kScalesSize + 2 * kBarrierSize);
  static constexpr int kOutOffset = kNumStages * kStageSize;
  static constexpr int kBroughtOffset = kOutOffset + kOutSize;
  static constexpr int kScalesOffset = kBroughtOffset + kBroughtSize;
  static constexpr int kBarriersOffset = kScalesOffset + kNumStages * kScalesSize;
  static constexpr int kSharedSize = kBarriersOffset + 2 * kNumStages * kBarrierSize;
  static_assert(kNumStages >= 2 && kSharedSize <= kMaxSharedSize);
};

// Where things are in shared memory.
template <typename S>
class Shared {
 public:
  __device__ explicit Shared(uint8_t* memory) : memory_(memory), base_(shared_address(memory)) {}

  __device__ uint32_t x(int stage) const { return base_ + stage * S::kStageSize; }
  __device__ uint32_t weight(int stage) const { return x(stage) + S::kXSize; }
  // A warp's rows of y.
  __device__ uint32_t rows(int warp) const { return base_ + S::kOutOffset + warp * kBoxSize; }
  // What part `source` of the others brings to the warp that is the `index`th finished here.
  __device__ uint32_t brought(int index, int source) const {
    return base_ + S::kBroughtOffset + (index * (S::kParts - 1) + source) * S::kSumsSize;
  }
  // The scales of a stage's group: of the rows of x, then of the units of columns.
  __device__ float* scales(int stage) const {
    return reinterpret_cast<float*>(memory_ + S::kScalesOffset + stage * S::kScalesSize);
  }
  __device__ uint32_t full(int stage) const {
    return base_ + S::kBarriersOffset + stage * kBarrierSize;
  }
  __device__ uint32_t empty(int stage) const { return full(S::kNumStages + stage); }

 private:
  uint8_t* const memory_;
  const uint32_t base_;
};

// Where a block stands in its cluster.
template <typename S>
struct Seat {
  int row = 0, column = 0, part = 0;

  __device__ Seat() {
    if constexpr (S::kClusterSize > 1) {
      const int rank = cluster_rank();
      row = rank % S::kClusterRows;
      column = rank / S::kClusterRows % S::kClusterColumns;
      if constexpr (S::kParts > 1) part = rank / S::kSharers;
    }
  }
  __device__ int rank_of(int of_row, int of_column) const {
    return of_row + S::kClusterRows * of_column + S::kSharers * part;
  }
};

// The groups of k of the block's part.
struct Groups {
  int begin, end;
};
template <typename S>
__device__ Groups groups_of(const BlocksArgs& args) {
  if constexpr (S::kParts == 1) return {0, args.num_groups};
  const int part = Seat<S>().part;
  return {args.num_groups * part / S::kParts, args.num_groups * (part + 1) / S::kParts};
}

// visit(row tile, column tile) for all tiles of the block.
template <typename S, typename Visit>
__device__ void for_tiles(const BlocksArgs& args, Visit&& visit) {
  const Seat<S> seat;
  const int num_steps = args.num_row_steps * args.num_column_steps;
  const int group_size = args.group_rows * args.num_column_steps;
  for (int i = blockIdx.x / S::kClusterSize; i < num_steps; i += args.num_clusters) {
    const int first_row = i / group_size * args.group_rows;
    const int num_rows = min(args.group_rows, args.num_row_steps - first_row);
    const int local = i % group_size;
    visit((first_row + local % num_rows) * S::kClusterRows + seat.row,
          local / num_rows * S::kClusterColumns + seat.column);
  }
}

}  // namespace atom::ops::device::blocks
