// Inside the linear for many rows on Hopper: its shared memory, the order of tiles, and the threads
// that copy x and the weight to the stages.
#pragma once

#include "ops/device/async_copy.cuh"
#include "ops/device/programmatic_launch.cuh"
#include "ops/device/reductions.cuh"
#include "ops/linear/wgmma/launch.h"
#include "ops/linear/wgmma/product.cuh"

namespace atom::ops::device::wgmma {

constexpr int kPanelSize = 128;  // bytes of k
constexpr int kPanelElements = kPanelSize / 2;
constexpr int kWarpgroupSize = 128, kWarpgroupRows = 64;
constexpr int kNumConsumers = 2 * kWarpgroupSize, kNumThreads = kNumConsumers + kWarpgroupSize;
constexpr int kConsumerWarps = kNumConsumers / kWarpSize;

constexpr int kNumStages = 4;
constexpr int kXSize = kWgmmaTileRows * kPanelSize;
constexpr int kHalfSize = kWgmmaTileColumns / 2 * kPanelSize;  // of the weight's part
constexpr int kStageSize = kXSize + 2 * kHalfSize;
// Rows of y on their way: eight of each consumer's warp, which begin in different banks.
constexpr int kRowsAtOnce = 8;
constexpr int kRowStride = kWgmmaTileColumns * 2 + 16;
constexpr int kRowsSize = kRowsAtOnce * kRowStride;
constexpr int kBarrierSize = 8;
constexpr int kRowsOffset = kNumStages * kStageSize;
constexpr int kBarriersOffset = kRowsOffset + kConsumerWarps * kRowsSize;
constexpr int kSharedSize = kBarriersOffset + 2 * kNumStages * kBarrierSize;

// Where things are in shared memory.
class Shared {
 public:
  __device__ explicit Shared(uint8_t* memory) : memory_(memory), base_(shared_address(memory)) {}

  __device__ uint32_t x(int stage) const { return base_ + stage * kStageSize; }
  __device__ uint32_t weight(int stage) const { return x(stage) + kXSize; }
  __device__ uint32_t full(int stage) const {
    return base_ + kBarriersOffset + stage * kBarrierSize;
  }
  __device__ uint32_t empty(int stage) const { return full(kNumStages + stage); }
  __device__ uint8_t* rows(int warp) const { return memory_ + kRowsOffset + warp * kRowsSize; }

 private:
  uint8_t* const memory_;
  const uint32_t base_;
};

// visit(row tile, column tile) for all tiles of the block.
template <typename Visit>
__device__ void for_tiles(const WgmmaArgs& args, Visit&& visit) {
  const int rank = cluster_rank();
  const int num_steps = args.num_row_steps * args.num_column_steps;
  const int group_size = args.group_rows * args.num_column_steps;
  for (int i = blockIdx.x / kWgmmaClusterSize; i < num_steps; i += args.num_clusters) {
    const int first_row = i / group_size * args.group_rows;
    const int num_rows = min(args.group_rows, args.num_row_steps - first_row);
    const int local = i % group_size;
    visit((first_row + local % num_rows) * kWgmmaClusterSize + rank, local / num_rows);
  }
}

// One thread copies the rows of x.
__device__ inline void copy_x(const WgmmaArgs& args, const Shared& shared) {
  const uint64_t policy = keep_policy();
  StageCursor stage;
  wait_for_previous_grid();
  for_tiles(args, [&](int row_tile, int) {
    for (int chunk = 0; chunk < args.num_chunks; ++chunk) {
      const uint32_t full = shared.full(stage.index);
      wait_for(shared.empty(stage.index), stage.parity ^ 1);
      arrive_expecting(full, kStageSize);
      copy_box(shared.x(stage.index),
               &args.x,
               chunk * kPanelElements,
               row_tile * kWgmmaTileRows,
               full,
               policy);
      stage.advance(kNumStages);
    }
  });
}

// Another copies a block's half of the weight rows of both blocks' tiles.
__device__ inline void copy_weight(const WgmmaArgs& args, const Shared& shared) {
  constexpr uint16_t kBothBlocks = 3;
  const bool gated = args.params.epilogue == LinearEpilogue::kSiluAndMul;
  const int step = gated ? kWgmmaTileColumns / 2 : kWgmmaTileColumns;
  const int rank = cluster_rank();
  const uint64_t policy = keep_policy();
  StageCursor stage;
  for_tiles(args, [&](int, int column_tile) {
    for (int chunk = 0; chunk < args.num_chunks; ++chunk) {
      wait_for(shared.empty(stage.index), stage.parity ^ 1);
      copy_box_to_all(shared.weight(stage.index) + rank * kHalfSize,
                      &args.weight,
                      chunk * kPanelElements,
                      column_tile * step + rank * args.weight_stride,
                      shared.full(stage.index),
                      kBothBlocks,
                      policy);
      stage.advance(kNumStages);
    }
  });
}

}  // namespace atom::ops::device::wgmma
