// Inside fused_moe for many tokens on Hopper: shared memory, and the thread that copies rows of x
// and of the matrices to the stages.
#pragma once

#include <cuda.h>

#include "ops/fused_moe/moe_tiles.cuh"

namespace atom::ops::device::moe {

constexpr int kTileColumns = 256;
constexpr int kPanelSize = 128;  // bytes of k
constexpr int kPanelElements = kPanelSize / 2;
constexpr int kWarpgroupSize = 128, kWarpgroupRows = 64;
constexpr int kNumConsumers = 2 * kWarpgroupSize, kNumThreads = kNumConsumers + kWarpgroupSize;
constexpr int kConsumerWarps = kNumConsumers / kWarpSize;
constexpr int kNumStages = 4;
constexpr int kXSize = kMoeTileRows * kPanelSize;
constexpr int kHalfSize = kTileColumns / 2 * kPanelSize;  // of the matrix's part
constexpr int kStageSize = kXSize + 2 * kHalfSize;
// Rows of a result on their way: eight of each consumer's warp, which begin in different banks.
constexpr int kRowsAtOnce = 8;
constexpr int kRowStride = kTileColumns * 2 + 16;
constexpr int kRowsSize = kRowsAtOnce * kRowStride;
constexpr int kBarrierSize = 8;
constexpr int kRowsOffset = kNumStages * kStageSize;
constexpr int kBarriersOffset = kRowsOffset + kConsumerWarps * kRowsSize;
constexpr int kSharedSize = kBarriersOffset + 2 * kNumStages * kBarrierSize;

struct MoeWgmmaArgs {
  // In boxes of 128 bytes of a tile's rows, and of half a tile's rows of all experts' matrices.
  CUtensorMap x, matrices;
  FusedMoeGpuCall call;
  MoeWgmmaScratch scratch;
  ExpertMatrices own;  // the same matrices
  int num_rows;        // of a matrix
  int num_outputs;     // of a row: those, or half of them
  int num_column_tiles;
  int num_chunks;  // of 128 bytes of k

  __device__ const FusedMoeGpuScratch& tiles() const { return scratch.shared; }
};

class Shared {
 public:
  __device__ explicit Shared(uint8_t* memory) : memory_(memory), base_(shared_address(memory)) {}

  __device__ uint32_t x(int stage) const { return base_ + stage * kStageSize; }
  __device__ uint32_t matrix(int stage) const { return x(stage) + kXSize; }
  __device__ uint32_t full(int stage) const {
    return base_ + kBarriersOffset + stage * kBarrierSize;
  }
  __device__ uint32_t empty(int stage) const { return full(kNumStages + stage); }
  __device__ uint8_t* rows(int warp) const { return memory_ + kRowsOffset + warp * kRowsSize; }

 private:
  uint8_t* const memory_;
  const uint32_t base_;
};

// By a warp, of which one lane copies.
template <bool kGated>
__device__ void copy_tiles(const MoeWgmmaArgs& args, const Shared& shared) {
  const uint64_t policy = keep_policy();
  const bool halves_apart = kGated && !args.call.activation.is_interleaved;
  const int step = halves_apart ? kTileColumns / 2 : kTileColumns;
  const int to_second = halves_apart ? args.num_rows / 2 : kTileColumns / 2;
  const bool copies = is_elected();
  StageCursor stage;
  for_tiles(args, [&](const MoeTile& tile) {
    if (!copies) return;
    const int row = tile.expert * args.num_rows + tile.column_tile * step;
    for (int chunk = 0; chunk < args.num_chunks; ++chunk) {
      const uint32_t full = shared.full(stage.index);
      wait_for(shared.empty(stage.index), stage.parity ^ 1);
      arrive_expecting(full, kStageSize);
      const int column = chunk * kPanelElements;
      const uint32_t matrix = shared.matrix(stage.index);
      copy_box(shared.x(stage.index), &args.x, column, tile.first_row, full, policy);
      copy_box(matrix, &args.matrices, column, row, full, policy);
      copy_box(matrix + kHalfSize, &args.matrices, column, row + to_second, full, policy);
      stage.advance(kNumStages);
    }
  });
}

}  // namespace atom::ops::device::moe
